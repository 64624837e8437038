/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the merge of layers: any entries are refused with a reason, or the result is one sound tree. Each
 * pair of bytes is an entry: its kind, and one of a few names, so that names collide. tests/jail compares the
 * rules with a model. */
#include "native/layers/tests/memory_tar.h"
#include "native/testing/fuzz.h"

static const char *const paths[] = { "a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a" };
static const char *const whiteouts[] = {
	".wh.a", ".wh.b", "a/.wh.a", "a/.wh.b", "b/.wh.a", "a/.wh..wh..opq", ".wh..wh..opq", "a/a/.wh..wh..opq",
};

static int one_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	bool *given = context;

	(void)err;
	if (*given)
		return 0;
	*given = true;
	*slice = (struct image_slice){ (const unsigned char *)"x", 1, 0, NULL };
	return 1;
}

static void check_tree(struct image_tree *tree)
{
	for (uint32_t i = 1; i < image_tree_count(tree); i++) {
		const struct image_node *node = image_tree_node(tree, i);

		if (!node->kind || node->kind == 'w')
			continue;
		MUST(image_tree_node(tree, node->parent)->kind == 'd');
		MUST(!(node->flags & IMAGE_PENDING));
		if (node->kind == 'd') {
			MUST(image_tree_folder_node(tree, node->link) == i);
		} else {
			const struct image_node *primary = image_tree_node(tree, node->link);

			MUST(primary->link == node->link && primary->kind == node->kind && node->kind != 'h');
		}
	}
}

static struct image_entry entry_of(unsigned char what, unsigned char where)
{
	static const char kinds[] = "dfflhfhd";
	struct image_entry entry = { .kind = kinds[what & 7], .path = paths[where & 7], .target = "", .size = 1 };

	if ((what & 0x38) == 0x38) {
		entry.path = whiteouts[where & 7];
		entry.kind = 'f';
	}
	if (entry.kind == 'h' || entry.kind == 'l')
		entry.target = paths[where >> 4 & 7];
	entry.target_length = strlen(entry.target);
	entry.path_length = strlen(entry.path);
	return entry;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_error err = { .fault = IMAGE_FAULT_NONE };
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	struct noted noted = { .tree = tree };
	struct image_sink sink = { &noting, &noted };
	struct image_merge *merge = image_merge_new(tree, &sink, &err);
	unsigned layer = 0;
	size_t begin = 0;
	int result = 0;

	noted.stream = open_memstream(&noted.text, &noted.length);
	/* 0x80: the next layer; the one that ends is given again as long as it is asked for. */
	for (size_t at = 0; at + 1 < size && !result; at += 2) {
		bool given = false;
		struct image_content content = { one_slice, &given };
		struct image_entry entry = entry_of(data[at], data[at + 1]);

		result = image_merge_entry(merge, layer, &entry, &content, &err);
		if (result || !(data[at] & 0x80))
			continue;
		for (int passes = 0; !result && image_merge_wants_again(merge, layer); passes++) {
			MUST(passes < 20);
			for (size_t i = begin; i <= at && !result; i += 2) {
				given = false;
				entry = entry_of(data[i], data[i + 1]);
				result = image_merge_again(merge, layer, &entry, &content, &err);
			}
			image_merge_again_ended(merge, layer);
		}
		begin = at + 2;
		layer++;
	}
	if (!result)
		result = image_merge_end(merge, &err);
	MUST(result ? err.fault == IMAGE_FAULT_SOURCE && err.message[0] : true);
	if (!result)
		check_tree(tree);
	fclose(noted.stream);
	free(noted.text);
	image_merge_free(merge);
	image_tree_free(tree);
	return 0;
}
