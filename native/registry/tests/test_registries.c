/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the TOML parser, and where registries.conf sends an image's name. */
#include "native/testing/check.h"
#include "native/registry/registries.h"
#include "native/registry/toml.h"

static void check_toml(const char *text, const char *json)
{
	struct jail_error err = { 0 };
	json_t *found = toml_parse(text, &err), *wanted = json_loads(json, 0, NULL);

	CHECK(found != NULL);
	CHECK(wanted != NULL);
	if (!found)
		fprintf(stderr, "%s: line %d: %s\n", text, err.line, err.message);
	json_object_del(found, TOML_LINE);
	CHECK(json_equal(found, wanted));
	json_decref(found);
	json_decref(wanted);
}

static void check_wrong(const char *text, int line)
{
	struct jail_error err = { 0 };

	CHECK(!toml_parse(text, &err));
	CHECK(err.line == line);
	CHECK(err.message[0]);
}

static void toml(void)
{
	check_toml("", "{}");
	check_toml("a = 1 # one\nb = \"x\"\r\nc=true\nd = -17\ne = 1.5\nf = 2020-01-01T00:00:00Z",
		   "{\"a\":1,\"b\":\"x\",\"c\":true,\"d\":-17,\"e\":\"1.5\",\"f\":\"2020-01-01T00:00:00Z\"}");
	check_toml("a = [1, [\"x\"],\n # c\n 2,\n]", "{\"a\":[1,[\"x\"],2]}");
	check_toml("a = \"\\u00e9\\t\\\"\\U0001F600\"", "{\"a\":\"\xc3\xa9\\t\\\"\xf0\x9f\x98\x80\"}");
	check_toml("a = 'C:\\x'", "{\"a\":\"C:\\\\x\"}");
	check_toml("a = \"\"\"\nx\\\n   y\"\"\"\"\nb = '''z'''", "{\"a\":\"xy\\\"\",\"b\":\"z\"}");
	check_toml("\"a.b\" = 1\n'c' = 2", "{\"a.b\":1,\"c\":2}");
	check_wrong("a = 1\nb = \"x\n", 2);
	check_wrong("a = 1\na = 2", 2);
	check_wrong("a", 1);
	check_wrong("a = ", 1);
	check_wrong("a = 1 b = 2", 1);
	check_wrong("[a]\n[b]\n[a]", 3);
	check_wrong("a = 1\n[a]", 2);
	check_wrong("[[a]]\n[a]", 2);
	check_wrong("[a\n", 1);
	check_wrong("a = [1, 2", 1);
	check_wrong("a = {b = 1", 1);
	check_wrong("a = \"\\x\"", 1);
	check_wrong("a = \"\\u0000\"", 1);
	check_wrong("a = \"\xff\"", 1);
	check_wrong("a = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 1);

	struct jail_error err;
	json_t *root = toml_parse("\n[[r]]\na.b = 1\n[[r.m]]\n[[r.m]]\n[[r]]\n", &err);
	json_t *entries = json_object_get(root, "r"), *first = json_array_get(entries, 0);
	CHECK(json_array_size(entries) == 2);
	CHECK(toml_line(first) == 2 && toml_line(json_array_get(entries, 1)) == 6);
	CHECK(json_array_size(json_object_get(first, "m")) == 2);
	CHECK(json_integer_value(json_object_get(json_object_get(first, "a"), "b")) == 1);
	json_decref(root);
}

/* `text` leads `uri` to "host path [mirror] [insecure]; ...". */
static void check_places(const char *text, const char *name, const char *wanted)
{
	struct registries *registries = registries_new();
	struct registries_answer answer;
	struct registry_error err = { 0 };
	struct registry_uri uri;
	char found[2000] = "";

	CHECK(!registry_uri_parse(&uri, name, &err));
	CHECK(!registries_add(registries, text, "test", &err));
	CHECK(!registries_find(registries, &uri, &answer, &err));
	for (unsigned i = 0; i < answer.n; i++)
		sprintf(found + strlen(found), "%s%s %s%s%s", i ? "; " : "", answer.places[i].host, answer.places[i].path,
			answer.places[i].is_mirror ? " mirror" : "", answer.places[i].insecure ? " insecure" : "");
	CHECK(!strcmp(found, wanted));
	if (strcmp(found, wanted))
		fprintf(stderr, "%s: %s\n%s\n", name, found, err.message);
	registries_free(registries);
}

static void places(void)
{
	static const char one[] = "[[registry]]\nlocation=\"a.example/x/\"\ninsecure=true\n"
				  "[[registry.mirror]]\nlocation=\"m.example\"\n"
				  "[[registry.mirror]]\nlocation=\"n.example:5/y\"\ninsecure=true\npull-from-mirror=\"tag-only\"\n";

	check_places("", "a.example/b", "a.example b");
	check_places(one, "a.example/x/b", "m.example b mirror; n.example:5 y/b mirror insecure; a.example x/b insecure");
	check_places(one, "a.example/xy/b", "a.example xy/b");
	check_places(one, "a.example/x/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		     "m.example b mirror; a.example x/b insecure");
	check_places("[[registry]]\nprefix=\"*.example\"\ninsecure=true", "a.b.example/c", "a.b.example c insecure");
	check_places("[[registry]]\nprefix=\"*.example\"\ninsecure=true", "example.org/c.example/d", "example.org c.example/d");
	check_places("[[registry]]\nprefix=\"*.example\"\nlocation=\"z.org/q\"", "a.example/c", "z.org q/c");
	check_places("[[registry]]\nprefix=\"a.example/b\"\nlocation=\"z.org/q\"", "a.example/b:1", "z.org q");
	check_places("[[registry]]\nprefix=\"docker.io/library\"\nlocation=\"z.org\"", "debian", "z.org debian");
}

int main(void)
{
	toml();
	places();
	return check_result("registries");
}
