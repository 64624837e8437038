/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the environment of a container, from its image, the files in environ.d and the command line. Also looks up
 * variables that configuration files mention as ${NAME}. start.c, mounts.c, script.c and hooks.c call it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "container.h"
#include "drop_ins.h"
#include "environment_file.h"

#define MAX_ENVIRONMENT (4 * 1024 * 1024)

const char *container_lookup(void *context, const char *name)
{
	const struct container *container = context;
	const char *value = NULL;

	if (!strcmp(name, "ENROOT_ROOTFS"))
		return container->top;
	if (!value)
		value = variables_get(&container->settings->variables, name);
	if (!value)
		value = variables_get(&container->environment, name);
	return value ? value : getenv(name);
}

const char *container_lookup_for_mounts(void *context, const char *name)
{
	const struct container *container = context;
	const char *value = container_lookup(context, name), *own = getenv(name);
	const char *image = variables_get(&container->image_environment, name);

	/* What environ.d, a script or -e made of it is theirs who say what is mounted; what is the image's is not. */
	bool of_image = value && image && !variables_get(&container->settings->variables, name) &&
			!variables_get(&container->own_environment, name) && !strcmp(value, image);
	return of_image && own ? own : value;
}

bool container_is_imported(const struct container *container)
{
	scoped_free char *rc = container_read(container->root, "/etc/rc", CONTAINER_MAX_RC);

	return rc && text_starts(rc, "# enroot-provenance:");
}

/* As the image says it: what is in it was expanded when it was built. A root that was not imported, but made by
 * debootstrap or by hand, has a distribution's file there. */
static void read_image(struct container *container)
{
	scoped_free char *text = container_read(container->root, "/etc/environment", MAX_ENVIRONMENT);

	if (!text)
		return;
	environment_read_image(&container->environment, text, "/etc/environment of the image",
			       container_is_imported(container) ? ENVIRONMENT_RAW : ENVIRONMENT_QUOTED);
	for (size_t i = 0; i < container->environment.list.n; i++)
		text_list_add(&container->image_environment.list, container->environment.list.items[i]);
}

static int read_own(struct container *container, const char *text, const char *name, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, container_lookup, container };

	return environment_read(&container->environment, text, name, &variables, err) ||
	       environment_read(&container->own_environment, text, name, NULL, err) ? -1 : 0;
}

int container_environment(struct container *container, struct jail_error *err)
{
	struct drop_ins files;
	scoped_buffer output = { 0 };
	int result = 0;

	read_image(container);
	drop_ins_find(&files, container->settings, "environ.d", ".env", false);
	for (size_t i = 0; !result && i < files.paths.n; i++) {
		scoped_free char *text = text_read(AT_FDCWD, files.paths.items[i], MAX_ENVIRONMENT, NULL, err);
		result = text ? read_own(container, text, files.paths.items[i], err) : -1;
	}
	drop_ins_free(&files);
	if (result || container_script(container, "environ", &output, err))
		return -1;
	if (output.text && read_own(container, output.text, container->script, err))
		return -1;
	for (size_t i = 0; i < container->variables.n; i++) {
		variables_set_pair(&container->environment, container->variables.items[i]);
		variables_set_pair(&container->own_environment, container->variables.items[i]);
	}
	return 0;
}
