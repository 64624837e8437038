/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the merge of layers: which files the sink is given, and in which order. tests/jail compares the
 * rules with a model. */
#include "native/testing/check.h"
#include <time.h>

#include "memory_tar.h"

struct given { char kind; const char *path, *target; };

static struct image_error err;

static int content_of(void *context, struct image_slice *slice, struct image_error *unused)
{
	const char **text = context;

	(void)unused;
	if (!*text)
		return 0;
	*slice = (struct image_slice){ (const unsigned char *)*text, strlen(*text), 0, NULL };
	*text = NULL;
	return 1;
}

static struct image_entry entry_of(const struct given *one)
{
	return (struct image_entry){
		.kind = one->kind, .path = one->path, .path_length = strlen(one->path),
		.target = one->kind == 'f' ? "" : one->target,
		.target_length = one->kind == 'f' ? 0 : strlen(one->target),
	};
}

/* Layers, the top one first, ended by a path of NULL, all by another. Gives what the sink was told. */
static const char *merged(const struct given *all)
{
	static char text[4096];
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	struct noted noted = { .tree = tree };
	struct image_sink sink = { &noting, &noted };
	struct image_merge *merge = image_merge_new(tree, &sink, &err);
	int result = 0;

	noted.stream = open_memstream(&noted.text, &noted.length);
	for (unsigned layer = 0; all->path && !result; layer++) {
		const struct given *end = all;

		for (; end->path && !result; end++) {
			struct image_entry entry = entry_of(end);
			const char *left = end->target;
			struct image_content content = { content_of, &left };

			result = image_merge_entry(merge, layer, &entry, &content, &err);
		}
		while (!result && image_merge_wants_again(merge, layer)) {
			fputs("again\n", noted.stream);
			for (const struct given *one = all; one->path && !result; one++) {
				struct image_entry entry = entry_of(one);
				const char *left = one->target;
				struct image_content content = { content_of, &left };

				result = image_merge_again(merge, layer, &entry, &content, &err);
			}
			image_merge_again_ended(merge, layer);
		}
		all = end + 1;
	}
	if (!result)
		result = image_merge_end(merge, &err);
	fclose(noted.stream);
	snprintf(text, sizeof(text), "%s%s", noted.text, result ? err.message : "");
	free(noted.text);
	image_merge_free(merge);
	image_tree_free(tree);
	return text;
}

#define MERGES(expected, ...)                                                     \
	do {                                                                      \
		const struct given all[] = { __VA_ARGS__, { 0, NULL, NULL }, { 0, NULL, NULL } }; \
		const char *found = merged(all);                                  \
		CHECK(!strcmp(found, expected));                                  \
		if (strcmp(found, expected))                                      \
			fprintf(stderr, "%s\n", found);                           \
	} while (0)
#define NEXT_LAYER { 0, NULL, NULL }

#define MANY 200000
#define SECONDS 10

static int count_one(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *unused)
{
	(void)node, (void)entry, (void)unused;
	++*(unsigned *)sink;
	return 0;
}

static int count_link(void *sink, uint32_t node, uint32_t primary, struct image_error *unused)
{
	(void)node, (void)primary, (void)unused;
	++*(unsigned *)sink;
	return 0;
}

static int nothing(void *context, struct image_slice *slice, struct image_error *unused)
{
	(void)context, (void)slice, (void)unused;
	return 0;
}

static int nothing_more(void *sink, struct image_error *unused)
{
	(void)sink, (void)unused;
	return 0;
}

static int is_replaced(void *sink, uint32_t node, uint32_t heir, struct image_error *unused)
{
	(void)sink, (void)node, (void)heir, (void)unused;
	return 0;
}

static const struct image_sink_operations counting = {
	.folder = count_one, .special = count_one, .file = count_one, .file_end = nothing_more, .link = count_link,
	.replace = is_replaced,
};

static int say(struct image_merge *merge, unsigned layer, char kind, const char *path, const char *target)
{
	const struct given one = { kind, path, target };
	const struct image_entry entry = entry_of(&one);
	const struct image_content content = { nothing, NULL };

	return image_merge_entry(merge, layer, &entry, &content, &err);
}

/* A layer of a few MiB says so much; what is made of it took minutes, or overflowed the stack. `wanted`: what the sink is
 * told (0: any). */
static void check_many(int (*tell)(struct image_merge *merge), unsigned wanted)
{
	unsigned calls = 0;
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	const struct image_sink sink = { &counting, &calls };
	struct image_merge *merge = image_merge_new(tree, &sink, &err);
	clock_t begun = clock();

	CHECK(!tell(merge) && !image_merge_end(merge, &err));
	CHECK(!wanted || calls == wanted);
	CHECK(clock() - begun < SECONDS * CLOCKS_PER_SEC);
	image_merge_free(merge);
	image_tree_free(tree);
}

static int tell_numbered(struct image_merge *merge, unsigned layer, unsigned number, unsigned target)
{
	char path[32], other[32];

	snprintf(path, sizeof(path), "l%u", number);
	snprintf(other, sizeof(other), "l%u", target);
	return say(merge, layer, 'h', path, other);
}

/* Links to links, whose file is of the layer below. */
static int tell_chain(struct image_merge *merge)
{
	for (unsigned i = 1; i <= MANY; i++)
		if (tell_numbered(merge, 0, i, i - 1))
			return -1;
	return say(merge, 1, 'f', "l0", "");
}

/* As many links to as many files that are not there yet. */
static int tell_pairs(struct image_merge *merge)
{
	for (unsigned i = 0; i < MANY; i++)
		if (tell_numbered(merge, 0, i, MANY + i))
			return -1;
	for (unsigned i = 0; i < MANY; i++) {
		char path[32];
		snprintf(path, sizeof(path), "l%u", MANY + i);
		if (say(merge, 1, 'f', path, ""))
			return -1;
	}
	return 0;
}

/* One file, again and again, beside as many others. */
static int tell_again(struct image_merge *merge)
{
	char path[32];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "d/%u", i);
		if (say(merge, 0, 'f', path, "") || say(merge, 0, 'f', "again", "") || say(merge, 0, 'h', "link", "again"))
			return -1;
	}
	return 0;
}

/* A file of many names that comes again each time it has changed hands. */
static int tell_names(struct image_merge *merge)
{
	int result = say(merge, 0, 'f', "l0", "");

	for (unsigned i = 1; !result && i <= MANY; i++)
		result = tell_numbered(merge, 0, i, 0);
	for (unsigned i = 0; !result && i < MANY; i++) {
		char path[32];
		snprintf(path, sizeof(path), "l%u", i ? MANY - i + 1 : 0);
		result = say(merge, 0, 'f', path, "");
	}
	CHECK(result && strstr(err.message, "many hard links"));
	return 0;
}

int main(void)
{
	check_many(tell_chain, MANY + 1);
	check_many(tell_pairs, 2 * MANY);
	check_many(tell_again, 3 * MANY);
	check_many(tell_names, 0);
	MERGES("f a=new\nf b=kept\n", { 'f', "a", "new" }, NEXT_LAYER, { 'f', "a", "old" }, { 'f', "b", "kept" });
	MERGES("f d/y=2\n", { 'f', "d/.wh.x", "" }, NEXT_LAYER, { 'f', "d/x", "1" }, { 'f', "d/y", "2" });
	MERGES("f d/n=3\n", { 'f', "d/n", "3" }, { 'f', "d/.wh..wh..opq", "" }, NEXT_LAYER, { 'f', "d/x", "1" });
	MERGES("l d->e\n", { 'l', "d", "e" }, NEXT_LAYER, { 'd', "d", "" }, { 'f', "d/x", "1" });
	MERGES("f a=one\nh b= a\n", { 'f', "a", "one" }, { 'h', "b", "a" });
	/* The name that the content came with is hidden: the layer is read again. */
	MERGES("f a=two\nagain\nf b=one\n", { 'f', "a", "two" }, NEXT_LAYER, { 'f', "a", "one" }, { 'h', "b", "a" });
	MERGES("again\nf b=one\nh c= b\n", { 'f', ".wh.a", "" }, NEXT_LAYER, { 'f', "a", "one" }, { 'h', "b", "a" },
	       { 'h', "c", "a" });
	/* The file is of the layer below. */
	MERGES("f a=one\nh b= a\n", { 'h', "b", "a" }, NEXT_LAYER, { 'f', "a", "one" });
	/* Twice in one layer: the later counts, and a link keeps what it was. */
	MERGES("f a=1\nh b= a\n- a> b\nf a=2\n", { 'f', "a", "1" }, { 'h', "b", "a" }, { 'f', "a", "2" });
	MERGES("is a hard link to /c, which is no file", { 'h', "b", "c" });
	MERGES("l a->x\nis no directory, and the archive has files below it", { 'l', "a", "x" }, { 'f', "a/b", "" });
	/* Something else lay between two directories: the upper one began afresh, whether it is named or only its files. */
	MERGES("f a/b=\n", { 'f', "a/b", "" }, NEXT_LAYER, { 'l', "a", "x" });
	MERGES("d a\nf a/new=2\n", { 'd', "a", "" }, { 'f', "a/new", "2" }, NEXT_LAYER, { 'f', "a", "x" }, NEXT_LAYER,
	       { 'd', "a", "" }, { 'f', "a/old", "1" });
	MERGES("f a/new=2\n", { 'f', "a/new", "2" }, NEXT_LAYER, { 'l', "a", "x" }, NEXT_LAYER, { 'd', "a", "" },
	       { 'f', "a/old", "1" });
	MERGES("f a/new=2\nagain\nf h=x\n", { 'f', "a/new", "2" }, NEXT_LAYER, { 'f', "a", "x" }, { 'h', "h", "a" });
	return check_result("merge");
}
