/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the comparison of two manifests: which paths differ, and their order. tests/jail compares it with a model. */
#include "native/volume/manifest_compare.h"
#include "native/testing/check.h"

/* "a<b" the names of the lines of each difference; "-": it has none. */
static const char *compared(const char *a, const char *b, size_t capacity)
{
	static char text[2048];
	struct image_lines one = { .text = a, .length = strlen(a) }, other = { .text = b, .length = strlen(b) };
	struct image_difference found[64];
	FILE *out = fmemopen(text, sizeof(text), "w");
	size_t count;

	do {
		count = image_manifest_compare(&one, &other, found, capacity);
		for (size_t i = 0; i < count; i++) {
			for (int side = 0; side < 2; side++) {
				uint64_t at = side ? found[i].b : found[i].a;
				const char *line = (side ? b : a) + at;

				if (at == IMAGE_NO_LINE)
					fputc('-', out);
				else
					fprintf(out, "%.*s", (int)strcspn(line, "\n"), line);
				fputs(side ? "\n" : "<", out);
			}
		}
	} while (count == capacity);
	fclose(out);
	return text;
}

#define DIFFER(expected, a, b)                                                      \
	do {                                                                        \
		for (size_t capacity = 1; capacity <= 64; capacity += 21) {                     \
			const char *found = compared(a, b, capacity);                   \
			CHECK(!strcmp(found, expected));                            \
			if (strcmp(found, expected))                                \
				fprintf(stderr, "%s\n", found);                     \
		}                                                                   \
	} while (0)

int main(void)
{
	DIFFER("", "", "");
	DIFFER("", "d 1 .\nf 1 a\nend 2 x\n", "d 1 .\nf 1 a\nend 2 y\n");
	DIFFER("f 1 a<f 2 a\n", "f 1 a\nf 1 b\n", "f 2 a\nf 1 b\n");
	DIFFER("f 1 a<-\n-<f 1 b\n", "f 1 a\n", "f 1 b\n");
	DIFFER("f 1 a<-\nf 1 b<-\n", "f 1 a\nf 1 b\n", "end 0\n");
	DIFFER("-<f 1 a\n", "end 0\n", "f 1 a\nend 1\n");
	/* Hard links are told also where they are equal. */
	DIFFER("h 1 a<h 1 a\n", "h 1 a\n", "h 1 a\n");
	/* What is in a directory comes before its next sibling, whatever that is called; the root before all. */
	DIFFER("-<d 1 .\n-<f 1 a/z\n-<f 1 a-b\n", "d 1 a\nf 1 b\n", "d 1 .\nd 1 a\nf 1 a/z\nf 1 a-b\nf 1 b\n");
	DIFFER("-<f 1 a%01\n-<f 1 a%20b\nf 1 a!<-\n", "f 1 a\nf 1 a!\n", "f 1 a\nf 1 a%01\nf 1 a%20b\n");
	DIFFER("f 1 %ff<-\n", "f 1 z\nf 1 %ff\n", "f 1 z\n");
	/* A line that is cut off is none. */
	DIFFER("-<f 1 a\n", "f 1 a", "f 1 a\n");
	/* Longer differences than fit into one answer. */
	DIFFER("-<f 1 a\n-<f 1 b\n-<f 1 c\n-<f 1 d\n-<f 1 e\n", "", "f 1 a\nf 1 b\nf 1 c\nf 1 d\nf 1 e\n");
	return check_result("manifest_compare");
}
