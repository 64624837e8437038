/* The merge from the top down: what is told to the sink, and in which order. More in tests/jail, by a model. */
#include "../../../spank_jail/tests/check.h"
#include "memory_tar.h"

struct told { char kind; const char *path, *target; };

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

static struct image_entry entry_of(const struct told *one)
{
	return (struct image_entry){
		.kind = one->kind, .path = one->path, .path_length = strlen(one->path),
		.target = one->kind == 'f' ? "" : one->target,
		.target_length = one->kind == 'f' ? 0 : strlen(one->target),
	};
}

/* Layers, the top one first, ended by a path of NULL, all by another. Gives what the sink was told. */
static const char *merged(const struct told *all)
{
	static char text[4096];
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	struct noted noted = { .tree = tree };
	struct image_sink sink = { &noting, &noted };
	struct image_merge *merge = image_merge_new(tree, &sink, &err);
	int result = 0;

	noted.stream = open_memstream(&noted.text, &noted.length);
	for (unsigned layer = 0; all->path && !result; layer++) {
		const struct told *end = all;

		for (; end->path && !result; end++) {
			struct image_entry entry = entry_of(end);
			const char *left = end->target;
			struct image_content content = { content_of, &left };

			result = image_merge_entry(merge, layer, &entry, &content, &err);
		}
		while (!result && image_merge_wants_again(merge, layer)) {
			fputs("again\n", noted.stream);
			for (const struct told *one = all; one->path && !result; one++) {
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
		const struct told all[] = { __VA_ARGS__, { 0, NULL, NULL }, { 0, NULL, NULL } }; \
		const char *found = merged(all);                                  \
		CHECK(!strcmp(found, expected));                                  \
		if (strcmp(found, expected))                                      \
			fprintf(stderr, "%s\n", found);                           \
	} while (0)
#define NEXT_LAYER { 0, NULL, NULL }

int main(void)
{
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
