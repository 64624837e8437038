/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a squashfs file or a root from an image's configuration and layers. cached_image.c and load.c call it. */
#define _GNU_SOURCE
#include "produce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/volume/assembly.h"
#include "native/base/report.h"
#include "layer_error.h"
#include "runtime_files.h"
#include "owners.h"
#include "progress.h"
#include "disk_space.h"
#include "squash_options.h"

struct production {
	const struct produce_request *request;
	struct progress progress;
	struct disk_space space;
	unsigned long long read; /* bytes of the layers, at the end */
};

static int open_requested_layer(void *context, unsigned layer)
{
	const struct produce_request *request = ((struct production *)context)->request;

	return request->layers.open_layer(request->layers_context, layer);
}

static int report_progress(void *context, unsigned long long bytes)
{
	struct production *production = context;
	const struct produce_request *request = production->request;

	progress_tell(&production->progress, bytes);
	if (request->advanced)
		request->advanced(request->advanced_context, bytes, request->total);
	return 0;
}

static struct image_layers_request layers_of(struct production *production)
{
	struct image_layers_request layers = production->request->layers;

	layers.open_layer = open_requested_layer;
	layers.progress = report_progress;
	layers.context = production;
	return layers;
}

static void tell_left_out(const struct produce_request *request, const struct text_buffer *environment)
{
	size_t lines = 0;

	for (size_t i = 0; i < environment->length; i++)
		lines += environment->text[i] == '\n';
	if (lines < request->config->environment.n)
		report_warning("%s: %zu of its variables are no lines KEY=VALUE, and are left out of /etc/environment", request->uri,
			       request->config->environment.n - lines);
}

/* Above all layers /dev is an empty directory: a container gets the host's, `enroot export` leaves it out, and device nodes
 * are what no user may make of an image (unsquashfs has a line for each). */
static int empty_dev(const struct produce_request *request, struct image_layers *layers, struct image_error *fault)
{
	static const struct { const char *path; char kind; uint32_t mode; } parts[] = {
		{ "dev/.wh..wh..opq", 'f', 0 }, { "dev", 'd', 0755 },
	};

	for (int i = 0; i < 2; i++) {
		const struct image_entry entry = { .kind = parts[i].kind, .path = parts[i].path,
						   .path_length = strlen(parts[i].path), .target = "", .mode = parts[i].mode,
						   .mtime_ns = request->config->created * 1000000000 };
		if (image_layers_generate(layers, &entry, "", fault))
			return -1;
	}
	return 0;
}

/* The files that the runtime needs, above all layers. */
static int generate(const struct produce_request *request, struct image_layers *layers, struct image_error *fault)
{
	static const struct { const char *path; uint32_t mode; } files[] = {
		{ "etc/rc", 0755 }, { "etc/fstab", 0644 }, { "etc/environment", 0644 },
	};
	struct text_buffer texts[3] = { { NULL, 0, 0 } };
	int result = empty_dev(request, layers, fault);

	generate_rc(&texts[0], request->config, request->uri);
	generate_fstab(&texts[1], request->config);
	generate_environment(&texts[2], request->config);
	tell_left_out(request, &texts[2]);
	for (int i = 0; i < 3 && !result; i++) {
		struct image_entry entry = { .kind = 'f', .path = files[i].path, .path_length = strlen(files[i].path),
					     .target = "", .mode = files[i].mode, .size = texts[i].length,
					     .stored = texts[i].length, .mtime_ns = request->config->created * 1000000000 };

		if (texts[i].length > IMAGE_BLOCK_SIZE)
			result = image_fail(fault, IMAGE_FAULT_SOURCE, files[i].path, "would be longer than 1 MiB");
		else
			result = image_layers_generate(layers, &entry, texts[i].text ? texts[i].text : "", fault);
	}
	for (int i = 0; i < 3; i++)
		text_buffer_free(&texts[i]);
	return result;
}

static const char *records_folder(const struct settings *settings)
{
	const char *folder = settings_get(settings, "ENROOT_TEMP_PATH");

	return *folder ? folder : "/tmp";
}

/* Why it failed: the source may know better than who reads from it. */
static int failed(const struct production *production, const struct image_error *fault, int layer)
{
	const struct produce_request *request = production->request;
	struct jail_error err;

	if (request->failure_is_handled && request->failure_is_handled(request->advanced_context, false))
		return -1;
	if (request->failure && request->failure(request->layers_context))
		return -1;
	if (fault->number == ENOSPC || fault->number == EDQUOT) {
		disk_space_explain(&production->space, fault->number, production->read, records_folder(request->settings), &err);
		return -report_failure(&err);
	}
	if (fault->syscall[0] && !strcmp(fault->path, records_folder(request->settings))) {
		jail_fail(&err, fault->syscall, fault->number, "cannot make a file in the directory ENROOT_TEMP_PATH (TMPDIR, or "
			  "/tmp); set it to one that is there and that you may write");
		jail_error_at(&err, NULL, 0, fault->path);
		return -report_failure(&err);
	}
	image_error_to_jail(fault, layer >= 0 ? request->layers.layers[layer].name : NULL, &err);
	return -report_failure(&err);
}

int produce_squashfs(const struct produce_request *request, int fd, struct squashfs_summary *summary)
{
	struct production production = { .request = request };
	struct image_layers_request layers_request = layers_of(&production);
	struct squashfs_options options = { .level = 0 };
	struct image_error fault;
	struct jail_error err = { .line = 0 };
	int layer = -1, result = -1;

	if (squash_options(&options, request->settings, request->config->created, &err))
		return -report_failure(&err);
	if (disk_space_check(&production.space, fd, request->total, &err))
		return request->failure_is_handled && request->failure_is_handled(request->advanced_context, true)
			       ? -1 : -report_failure(&err);
	progress_begin(&production.progress, request->total);
	struct image_tree *tree = image_tree_new(records_folder(request->settings), IMAGE_MEMORY_IMPORT, &fault);
	struct image_records *records = tree ? image_records_new(records_folder(request->settings), &fault) : NULL;
	struct squashfs *squashfs = records ? squashfs_new(tree, records, fd, &options, &fault) : NULL;
	struct image_layers *layers = NULL;
	if (squashfs) {
		struct image_sink sink = squashfs_sink(squashfs);
		layers = image_layers_new(tree, &sink, &layers_request, &fault);
	}
	if (layers && !generate(request, layers, &fault) && !image_layers_run(layers, &layer, &fault) &&
	    !squashfs_finish(squashfs, summary, &fault))
		result = 0;
	progress_end(&production.progress);
	production.read = layers ? atomic_load(&layers->read) : 0;
	if (result)
		failed(&production, &fault, layer);
	squashfs_free(squashfs);
	image_layers_free(layers);
	image_records_free(records);
	image_tree_free(tree);
	return result;
}

static void tell_losses(const struct image_directory *directory)
{
	static const char *const names[IMAGE_N_LOSSES] = {
		"owners", "modes", "times", "file capabilities", "access lists", "extended attributes", "devices", "fifos",
		"symbolic links", "hard links",
	};
	const struct image_lost *losses = image_directory_losses(directory);

	/* All belongs to who runs this, but for directories that no layer describes, which stay as they were made. */
	for (int i = IMAGE_LOSS_OWNER + 1; i < IMAGE_N_LOSSES; i++)
		if (atomic_load(&losses[i].count))
			report_warning("%llu %s could not be kept, as of /%s", atomic_load(&losses[i].count), names[i],
				       losses[i].first);
}

int produce_root(const struct produce_request *request, int root)
{
	struct production production = { .request = request };
	struct image_layers_request layers_request = layers_of(&production);
	struct image_directory_request directory_request = {
		.root = root, .jobs = squash_jobs(request->settings, 2), .lossy = true,
	};
	struct image_error fault;
	struct owners owners;
	int layer = -1, result = -1;

	struct jail_error err;
	if (disk_space_check(&production.space, root, request->total, &err))
		return -report_failure(&err);
	progress_begin(&production.progress, request->total);
	struct image_tree *tree = image_tree_new(records_folder(request->settings), IMAGE_MEMORY_IMPORT, &fault);
	struct image_records *records = tree ? image_records_new(records_folder(request->settings), &fault) : NULL;
	struct image_directory *directory = records ? image_directory_new(tree, records, &directory_request, &fault) : NULL;
	struct image_layers *layers = NULL;
	if (directory) {
		struct image_sink sink = owners_sink(&owners, image_directory_sink(directory));
		layers = image_layers_new(tree, &sink, &layers_request, &fault);
	}
	if (layers && !generate(request, layers, &fault) && !image_layers_run(layers, &layer, &fault) &&
	    !image_directory_finish(directory, &fault) && !image_directory_seal(directory, &fault))
		result = 0;
	progress_end(&production.progress);
	production.read = layers ? atomic_load(&layers->read) : 0;
	if (result)
		failed(&production, &fault, layer);
	else
		tell_losses(directory);
	image_directory_free(directory);
	image_layers_free(layers);
	image_records_free(records);
	image_tree_free(tree);
	return result;
}
