/* SPDX-License-Identifier: Apache-2.0 */
/* The structures and numbers of squashfs 4.0 on disk. All numbers are little-endian. */
#ifndef SQUASHFS_FORMAT_H
#define SQUASHFS_FORMAT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define SQUASHFS_MAGIC 0x73717368u
#define SQUASHFS_SUPERBLOCK 96
#define SQUASHFS_METADATA 8192 /* bytes of metadata that are compressed together */
#define SQUASHFS_METADATA_PLAIN 0x8000u
#define SQUASHFS_BLOCK_PLAIN (1u << 24)
#define SQUASHFS_NONE 0xffffffffu
#define SQUASHFS_ABSENT UINT64_MAX

/* Of the superblock. */
#define SQUASHFS_NO_INODE_COMPRESSION 0x0001
#define SQUASHFS_NO_DATA_COMPRESSION 0x0002
#define SQUASHFS_NO_FRAGMENT_COMPRESSION 0x0008
#define SQUASHFS_NO_FRAGMENTS 0x0010
#define SQUASHFS_ALWAYS_FRAGMENTS 0x0020
#define SQUASHFS_EXPORTABLE 0x0080
#define SQUASHFS_NO_XATTR_COMPRESSION 0x0100
#define SQUASHFS_NO_XATTRS 0x0200
#define SQUASHFS_COMPRESSOR_OPTIONS 0x0400
#define SQUASHFS_NO_ID_COMPRESSION 0x0800

/* An inode's type; with more fields it is that and 7. */
enum squashfs_type {
	SQUASHFS_FOLDER = 1,
	SQUASHFS_FILE,
	SQUASHFS_SYMLINK,
	SQUASHFS_BLOCK_DEVICE,
	SQUASHFS_CHARACTER_DEVICE,
	SQUASHFS_FIFO,
	SQUASHFS_EXTENDED = 7,
};

static inline unsigned char *put16(unsigned char *to, uint16_t value)
{
	value = htole16(value);
	memcpy(to, &value, sizeof(value));
	return to + sizeof(value);
}

static inline unsigned char *put32(unsigned char *to, uint32_t value)
{
	value = htole32(value);
	memcpy(to, &value, sizeof(value));
	return to + sizeof(value);
}

static inline unsigned char *put64(unsigned char *to, uint64_t value)
{
	value = htole64(value);
	memcpy(to, &value, sizeof(value));
	return to + sizeof(value);
}

#endif
