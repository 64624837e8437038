/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reader of CDI specifications: what it reads, and the error for each kind of wrong input. */
#include <errno.h>
#include <stdlib.h>

#include "native/cdi/cdi.h"
#include "native/base/elf_soname.h"
#include "native/base/sys.h"
#include "native/base/yaml_tree.h"
#include "native/testing/check.h"

#define HEAD "cdiVersion: 1.0.0\nkind: nvidia.com/gpu\n"

static struct jail_error err;
static char formatted[1400];

static int parse(const char *text, struct jail_cdi_spec *spec)
{
	memset(&err, 0, sizeof(err));
	return jail_cdi_spec_parse(text, strlen(text), "gpu.yaml", spec, &err);
}

static const char *refused(const char *text)
{
	struct jail_cdi_spec spec;

	CHECK(parse(text, &spec) == -1);
	CHECK(!spec.file && !spec.arena.blocks && !spec.devices.n);
	return jail_error_format(&err, formatted, sizeof(formatted));
}

static void test_a_full_specification(void)
{
	struct jail_cdi_spec spec;

	CHECK(parse("---\n"
		    "cdiVersion: \"0.6.0\"\n"
		    "kind: nvidia.com/gpu\n"
		    "annotations: {any: [thing]}\n"
		    "devices:\n"
		    "- name: \"0\"\n"
		    "  containerEdits:\n"
		    "    deviceNodes:\n"
		    "    - path: /dev/nvidia0\n"
		    "      major: 195\n"
		    "      minor: 0x1f\n"
		    "      type: c\n"
		    "      fileMode: 0660\n"
		    "      permissions: rw\n"
		    "containerEdits:\n"
		    "  env: [A=b=c]\n"
		    "  hooks:\n"
		    "  - {hookName: createContainer, path: /bin/x, args: [x, update-ldcache], timeout: 3}\n"
		    "  mounts:\n"
		    "  - hostPath: /lib/a\n"
		    "    containerPath: /lib/b\n"
		    "    options: [ro, nosuid, rbind]\n"
		    "  - hostPath: /c\n"
		    "    containerPath: /c\n"
		    "    options: null\n", &spec) == 0);
	CHECK(!strcmp(spec.kind, "nvidia.com/gpu") && spec.devices.n == 1 && !strcmp(spec.devices.items[0].name, "0"));
	const struct jail_cdi_device_node *node = &spec.devices.items[0].edits.device_nodes.items[0];
	CHECK(node->line == 9 && node->major.value == 195 && node->minor.value == 31 && node->mode.value == 0660);
	CHECK(!strcmp(node->host_path, node->path) && !node->uid.given);
	CHECK(spec.edits.environment.n == 1 && !strcmp(spec.edits.environment.items[0], "A=b=c"));
	CHECK(spec.edits.hooks.n == 1 && spec.edits.hooks.items[0].arguments.n == 2);
	CHECK(spec.edits.mounts.n == 2 && spec.edits.mounts.items[0].recursive && !spec.edits.mounts.items[1].recursive);
	CHECK(spec.edits.mounts.items[0].attributes == (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID));
	CHECK(spec.edits.mounts.items[1].line == 23 && spec.edits.mounts.items[1].options.n == 0);
	jail_cdi_spec_free(&spec);
	CHECK(!spec.file && !spec.arena.blocks);
}

static void test_json(void)
{
	struct jail_cdi_spec spec;

	CHECK(parse("{\"cdiVersion\":\"0.3.0\",\n\t\"kind\":\"a.b/c\",\"devices\":[{\"name\":\"all\",\"containerEdits\":"
		    "{\"env\":[\"A=\\u00e4\\/\"]}}],\"containerEdits\":{}}", &spec) == 0);
	CHECK(!strcmp(spec.devices.items[0].edits.environment.items[0], "A=\xc3\xa4/"));
	jail_cdi_spec_free(&spec);
}

static void test_many_devices(void)
{
	char *text = calloc(1, 400000), *end = text;
	struct jail_cdi_spec spec;

	end += sprintf(end, HEAD "devices:\n");
	for (int i = 0; i < 4096; i++)
		end += sprintf(end, "- {name: d%d, containerEdits: {env: [A=%d]}}\n", i, i);
	CHECK(parse(text, &spec) == 0 && spec.devices.n == 4096);
	CHECK(!strcmp(spec.devices.items[4095].edits.environment.items[0], "A=4095"));
	jail_cdi_spec_free(&spec);
	sprintf(end, "- {name: more}\n");
	CHECK_HAS(refused(text), "more than 4096 devices");
	free(text);
}

static void test_wrong_ones_say_where_and_why(void)
{
	CHECK_HAS(refused(HEAD "devices: [{name: [a]}]"), "gpu.yaml:3: name must be a text");
	CHECK_HAS(refused(HEAD "devices: [all]"), "gpu.yaml:3: this value must be a map");
	CHECK_HAS(refused(HEAD "containerEdits: []"), "gpu.yaml:3: containerEdits must be a map");
	CHECK_HAS(refused(HEAD "containerEdits:\n  netDevices: []"), "gpu.yaml:4: CDI 1.0 has no key \"netDevices\" here");
	CHECK_HAS(refused(HEAD "containerEdits:\n  env: A=b"), "gpu.yaml:4: env must be a list of texts");
	CHECK_HAS(refused(HEAD "containerEdits:\n  env: [=b]"), "NAME=VALUE, not \"=b\"");
	CHECK_HAS(refused("cdiVersion: 1.1.0\nnew: thing\n"), "gpu.yaml:1: cdiVersion \"1.1.0\" is not known");
	CHECK_HAS(refused("cdiVersion: 0.3.0 0.4.0\n"), "is not known");
	CHECK_HAS(refused("cdiVersion: {}\n"), "is not known");
	CHECK_HAS(refused("cdiVersion: 1.0.0\n"), "there is no kind");
	CHECK_HAS(refused("cdiVersion: 1.0.0\nkind: gpu\ndevices: [{name: a}]"), "gpu.yaml:3: kind and name of the device");
	CHECK_HAS(refused("text"), "gpu.yaml:1: there is no cdiVersion");
	CHECK_HAS(refused("# nothing\n"), "the file is empty");
	CHECK_HAS(refused("a: \"x\\0y\"\n"), "a byte of zero");
	CHECK_HAS(refused("? [a]\n: b\n"), "a key must be a plain text");
	CHECK_HAS(refused("a: !!binary x\n"), "tags (!) are not taken");
	CHECK_HAS(refused("a: 'x\n"), "gpu.yaml:2: this is neither YAML nor JSON");
}

static void test_devices_and_mounts(void)
{
#define NODE HEAD "containerEdits:\n  deviceNodes:\n  - "
#define MOUNT HEAD "containerEdits:\n  mounts:\n  - "
	CHECK_HAS(refused(NODE "{path: /dev/x/../y}"), "gpu.yaml:5: path \"/dev/x/../y\" must not contain \"..\"");
	CHECK_HAS(refused(NODE "{hostPath: /dev/x}"), "path must be given");
	CHECK_HAS(refused(NODE "{path: /dev/}"), "without a slash at the end");
	CHECK_HAS(refused(NODE "{path: /dev/x, type: d}"), "type must be b, c, u or p");
	CHECK_HAS(refused(NODE "{path: /dev/x, major: -1}"), "from 0 to 4294967295, not \"-1\"");
	CHECK_HAS(refused(NODE "{path: /dev/x, major: \"1\"}"), "major must be a number");
	CHECK_HAS(refused(NODE "{path: /dev/x, fileMode: 010666}"), "permissions only");
	CHECK_HAS(refused(NODE "{path: /dev/x, permissions: rx}"), "made of r, w and m");
	CHECK_HAS(refused(MOUNT "{hostPath: /a, containerPath: /b, type: tmpfs}"), "of type \"tmpfs\" is not built");
	CHECK_HAS(refused(MOUNT "{hostPath: /a, containerPath: b}"), "containerPath must be given, and be an absolute");
	CHECK_HAS(refused(MOUNT "{hostPath: /a, containerPath: /}"), "must name a file or directory");
}

static void test_names(void)
{
	static const char *const wrong[] = {
		"", "gpu", "nvidia.com/gpu", "nvidia.com/gpu=", "/gpu=0", "nvidia.com/=0", "nvidia.com=0", "n/g/h=0",
		"-n/gpu=0", "n./gpu=0", "1n/gpu=0", "n/1gpu=0", "n/gpu=a b", "n/gpu=a/b", "n/gpu=-a", "n/g=a=b",
	};
	static const char *const right[] = { "nvidia.com/gpu=all", "n/g=0", "v_1-x.y/c_l-s=GPU-1:0.b_c", "a/b=0:1" };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(jail_cdi_name_check(wrong[i], &err) == -1);
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		CHECK(jail_cdi_name_check(right[i], &err) == 0);
	CHECK(jail_cdi_is_library("libcuda.so") && jail_cdi_is_library("libcuda.so.1"));
	CHECK(!jail_cdi_is_library("nvidia.sock") && !jail_cdi_is_library("a.sox"));
}

static void test_truncated_anywhere(void)
{
	static const char text[] = HEAD "devices:\n- name: all\n  containerEdits:\n    env: [\"A=b\"]\n    mounts:\n"
		"    - {hostPath: /a, containerPath: \"/b\", options: ['ro']}\n";
	struct jail_cdi_spec spec;

	for (size_t length = 0; length < sizeof(text) - 1; length++)
		if (!jail_cdi_spec_parse(text, length, "gpu.yaml", &spec, &err))
			jail_cdi_spec_free(&spec);
		else
			CHECK(err.message[0] && err.line > 0 && !spec.file);
}

static void test_sonames(void)
{
	char soname[256], cut[4];

	CHECK(jail_elf_soname("/lib64/ld-linux-x86-64.so.2", soname, sizeof(soname)) == JAIL_ELF_OURS ||
	      jail_elf_soname("/lib/ld-linux-aarch64.so.1", soname, sizeof(soname)) == JAIL_ELF_OURS);
	CHECK(!strncmp(soname, "ld-linux", 8));
	CHECK(jail_elf_soname("/lib64/ld-linux-x86-64.so.2", cut, sizeof(cut)) == JAIL_ELF_OURS ? !*cut : 1);
	CHECK(jail_elf_soname("/etc/passwd", soname, sizeof(soname)) == JAIL_ELF_FOREIGN && !*soname);
	CHECK(jail_elf_soname("/nonexistent", soname, sizeof(soname)) == JAIL_ELF_FOREIGN);
	CHECK(jail_elf_soname("/dev/null", soname, sizeof(soname)) == JAIL_ELF_FOREIGN);
}

static void test_a_missing_library(void)
{
	sys_fault_set(1, ENOENT);
	CHECK_HAS(refused(HEAD), "libyaml-0.so.2, which reads CDI specifications, cannot be loaded");
	CHECK(err.number == ENOENT && !strcmp(err.syscall, "dlopen"));
	sys_fault_set(0, 0);
}

int main(void)
{
	test_a_full_specification();
	test_json();
	test_many_devices();
	test_wrong_ones_say_where_and_why();
	test_devices_and_mounts();
	test_names();
	test_truncated_anywhere();
	test_sonames();
	test_a_missing_library();
	return check_result("cdi");
}
