/* SPDX-License-Identifier: Apache-2.0 */
/* Hands entries of the merged tree, with content or as hard links, to the sink that writes them. merge.c and
 * merge_links.c call it. */
#define _GNU_SOURCE
#include "merge_parts.h"

int merge_tell(struct image_merge *merge, uint32_t node, const struct image_entry *entry,
		const struct image_content *content, struct image_error *err)
{
	const struct image_sink_operations *to = merge->sink.operations;
	void *sink = merge->sink.context;
	struct image_slice slice;
	int got;

	if (entry->kind == 'd')
		return to->folder(sink, node, entry, err);
	if (entry->kind != 'f')
		return to->special(sink, node, entry, err);
	if (to->file(sink, node, entry, err))
		return -1;
	while ((got = content->next(content->context, &slice, err)) > 0)
		if (to->slice(sink, &slice, err))
			return -1;
	return got ? -1 : to->file_end(sink, err);
}

int merge_tell_link(struct image_merge *merge, uint32_t link, uint32_t primary, struct image_error *err)
{
	at(merge, link)->kind = at(merge, primary)->kind;
	at(merge, link)->link = primary;
	at(merge, link)->flags &= (uint8_t)~IMAGE_PENDING;
	if (merge_lists_join(&merge->lists, primary, link))
		return image_fail_memory(err);
	return merge->sink.operations->link(merge->sink.context, link, primary, err);
}
