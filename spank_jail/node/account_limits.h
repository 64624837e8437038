/* SPDX-License-Identifier: Apache-2.0 */
/* The ids and names that accounts from the jail may have on a node. */
#ifndef ACCOUNT_LIMITS_H
#define ACCOUNT_LIMITS_H

/* The distribution's first id of an ordinary user or group (login.defs(5), UID_MIN and GID_MIN). */
#define ACCOUNTS_FIRST_ID 1000U
/* Ids that are nobody's or a daemon's (Debian's policy, 9.2.2): slurm is 64030, munge 65520, nobody 65534, and 65535 is -1
 * in 16 bits. */
#define ACCOUNTS_RESERVED_FIRST 60001U
#define ACCOUNTS_RESERVED_LAST 65535U
/* Above, programs that hold an id in a signed number see a negative one. */
#define ACCOUNTS_LAST_ID 0x7fffffffU
/* Debian's group `users`: the primary group of who has none of his own. It owns nothing on a node. */
#define ACCOUNTS_USERS_GID 100U
/* Bytes of a name. useradd(8) takes 32, directories of sites have longer ones. */
#define ACCOUNTS_NAME_MAX 64U

#endif
