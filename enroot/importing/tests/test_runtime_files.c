/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the files rc, environment and fstab, made from usual image configurations and from hostile ones. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "native/testing/check.h"
#include "enroot/importing/runtime_files.h"

static struct jail_error err;

static char *generated(const char *json, void (*generate)(struct text_buffer *, const struct image_config *))
{
	struct text_buffer text = { NULL, 0, 0 };
	scoped_config config = { .folder = NULL };

	CHECK(!image_config_parse(&config, json, strlen(json), "test", &err));
	generate(&text, &config);
	return text.text ? text.text : text_copy("", 0);
}

static void rc(struct text_buffer *text, const struct image_config *config)
{
	generate_rc(text, config, "docker://debian\nrm -rf /");
}

static void check_is(char *found, const char *expected)
{
	CHECK(!strcmp(found, expected));
	if (strcmp(found, expected))
		fprintf(stderr, "found:\n%s\n", found);
	free(found);
}

static void check_has(char *found, const char *part)
{
	CHECK_HAS(found, part);
	free(found);
}

int main(void)
{
	check_is(generated("{}", rc),
		 "# enroot-provenance: docker://debian rm -rf /\n\n"
		 "mkdir -p -- '/' 2> /dev/null\nCDPATH= cd -- '/' || exit 1\nunset OLDPWD\n\n"
		 "if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n"
		 "if [ $# -gt 0 ]; then\n    exec \"$@\"\nelse\n    exec '/bin/sh'\nfi\n");
	check_has(generated("{\"config\": {\"Entrypoint\": [\"/e\", \"a b\"], \"Cmd\": [\"it's\", \"$X\"]}}", rc),
		  "    exec '/e' 'a b' \"$@\"\nelse\n    exec '/e' 'a b' 'it'\\''s' '$X'\nfi\n");
	check_has(generated("{\"config\": {\"Entrypoint\": null, \"Cmd\": [\"x\"]}}", rc), "exec \"$@\"\nelse\n    exec 'x'\n");
	check_has(generated("{\"config\": {\"Labels\": {\"b\": \"2\\nrm\", \"a\": \"1\"}}}", rc), "# a=1\n# b=2 rm\n\n");
	check_has(generated("{\"config\": {\"WorkingDir\": \"/a'b\"}}", rc), "cd -- '/a'\\''b' || exit 1\n");
	check_is(generated("{\"config\": {\"Volumes\": {\"/b c\": {}, \"/a\": {}}}}", generate_fstab),
		 "${ENROOT_ROOTFS}/a /a none x-create=dir,bind,rw,nosuid,nodev\n"
		 "${ENROOT_ROOTFS}/b\\040c /b\\040c none x-create=dir,bind,rw,nosuid,nodev\n");
	/* A volume cannot be what no container could start with, nor add a line or a variable. */
	check_is(generated("{\"config\": {\"Volumes\": {\"a/./b/\": {}, \"/\": {}, \"/c/../../../d\": {}, \"../e\": {}, \"/..\": {}, "
			   "\"/f\\n/ /g none bind\": {}, \"/$HOME/${X}#\": {}}}}", generate_fstab),
		 "${ENROOT_ROOTFS}/e /e none x-create=dir,bind,rw,nosuid,nodev\n"
		 "${ENROOT_ROOTFS}/\\044HOME/\\044{X}\\043 /\\044HOME/\\044{X}\\043 none x-create=dir,bind,rw,nosuid,nodev\n"
		 "${ENROOT_ROOTFS}/d /d none x-create=dir,bind,rw,nosuid,nodev\n"
		 "${ENROOT_ROOTFS}/f\\012/\\040/g\\040none\\040bind /f\\012/\\040/g\\040none\\040bind none "
		 "x-create=dir,bind,rw,nosuid,nodev\n"
		 "${ENROOT_ROOTFS}/a/b /a/b none x-create=dir,bind,rw,nosuid,nodev\n");
	check_is(generated("{\"config\": {\"Env\": [\"A=b c\", \"E=\", \"no\", \"1=2\", \"X=1\\n2\", \"a.b-c=1\", \".=2\", \"=3\"]}}",
			   generate_environment), "A=b c\nE=\na.b-c=1\n");
	struct image_config config;
	const char *const wrong[] = { "", "[]", "{\"config\": {\"Env\": 1}}", "{\"config\": {\"Cmd\": [1]}}",
				      "{\"config\": {\"Volumes\": [\"/a\"]}}" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(image_config_parse(&config, wrong[i], strlen(wrong[i]), "test", &err) == -1);
		CHECK_HAS(err.message, "its configuration is no");
		image_config_free(&config);
	}
	return check_result("generate");
}
