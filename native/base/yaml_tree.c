/* SPDX-License-Identifier: Apache-2.0 */
/* Parses YAML or JSON into a tree of values. It loads the library libyaml when the first document is parsed, so that
 * other steps do not pay for it. native/cdi calls it. */
#define _GNU_SOURCE
#include "yaml_tree.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "sys.h"

#define LIBRARY "libyaml-0.so.2"
/* CDI's own structure is seven deep. */
#define MAX_DEPTH 16
/* Eight GPUs cut into MIG devices, each by three names, take 20,000. */
#define MAX_NODES 200000
/* The largest map of CDI has seven keys; annotations are free. Keeps the search for doubles short. */
#define MAX_KEYS 64

struct library {
	void *handle;
	__typeof__(yaml_parser_initialize) *initialize;
	__typeof__(yaml_parser_set_input_string) *set_input;
	__typeof__(yaml_parser_parse) *parse;
	__typeof__(yaml_parser_delete) *delete_parser;
	__typeof__(yaml_event_delete) *delete_event;
};

struct reader {
	const struct library *yaml;
	yaml_parser_t parser;
	const char *name;
	struct jail_arena *arena;
	struct jail_error *err;
	size_t n_nodes;
};

static int library_open(struct library *yaml, struct jail_error *err)
{
	/* Found by the node's own ld.so.cache: trees are built before the window opens and before the
	 * pivot, so nothing of the jail can be what is loaded here. */
	yaml->handle = sys_dlopen(LIBRARY);
	if (!yaml->handle) {
		int number = errno;
		const char *reason = dlerror();
		return jail_fail(err, "dlopen", number, LIBRARY ", which reads CDI specifications, cannot be loaded%s%s; "
				 "install libyaml-0-2 on this node", reason ? ": " : "", reason ? reason : "");
	}
	yaml->initialize = dlsym(yaml->handle, "yaml_parser_initialize");
	yaml->set_input = dlsym(yaml->handle, "yaml_parser_set_input_string");
	yaml->parse = dlsym(yaml->handle, "yaml_parser_parse");
	yaml->delete_parser = dlsym(yaml->handle, "yaml_parser_delete");
	yaml->delete_event = dlsym(yaml->handle, "yaml_event_delete");
	if (yaml->initialize && yaml->set_input && yaml->parse && yaml->delete_parser && yaml->delete_event)
		return 0;
	dlclose(yaml->handle);
	return jail_fail(err, NULL, 0, LIBRARY " lacks a function of libyaml 0.2; install libyaml-0-2 anew on this node");
}

static int wrong(struct reader *reader, size_t line, const char *what)
{
	jail_fail(reader->err, NULL, 0, "%s", what);
	return jail_error_at(reader->err, reader->name, (int)line + 1, NULL);
}

static int no_memory(struct reader *reader)
{
	jail_fail(reader->err, "malloc", ENOMEM, "not enough memory to read it");
	return jail_error_at(reader->err, reader->name, 0, NULL);
}

static int next_event(struct reader *reader, yaml_event_t *event)
{
	const yaml_parser_t *parser = &reader->parser;

	if (reader->yaml->parse(&reader->parser, event))
		return 0;
	if (parser->error == YAML_MEMORY_ERROR)
		return no_memory(reader);
	jail_fail(reader->err, NULL, 0, "this is neither YAML nor JSON: %s%s%s", parser->context ? parser->context : "",
		  parser->context ? ", " : "", parser->problem ? parser->problem : "it cannot be read");
	return jail_error_at(reader->err, reader->name, (int)parser->problem_mark.line + 1, NULL);
}

static struct jail_yaml_node *new_node(struct reader *reader, enum jail_yaml_kind kind, size_t line)
{
	struct jail_yaml_node *node = NULL;

	if (++reader->n_nodes > MAX_NODES)
		wrong(reader, line, "more values than any CDI specification has; is it one?");
	else if (!(node = jail_arena_alloc(reader->arena, sizeof(*node))))
		no_memory(reader);
	else
		*node = (struct jail_yaml_node){ .kind = kind, .line = (int)line + 1 };
	return node;
}

static struct jail_yaml_node *read_scalar(struct reader *reader, const yaml_event_t *event)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t length = event->data.scalar.length, line = event->start_mark.line;

	if (strlen(value) != length) {
		wrong(reader, line, "a text holds a byte of zero");
		return NULL;
	}
	struct jail_yaml_node *node = new_node(reader, JAIL_YAML_SCALAR, line);
	if (!node)
		return NULL;
	node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	node->text = jail_arena_copy(reader->arena, value, length);
	if (!node->text)
		no_memory(reader);
	return node->text ? node : NULL;
}

static struct jail_yaml_node *read_node(struct reader *reader, const yaml_event_t *event, unsigned depth);

/* A key was read; its value follows. */
static struct jail_yaml_node *read_value(struct reader *reader, const struct jail_yaml_node *map,
					 const yaml_event_t *key_event, unsigned depth)
{
	struct jail_yaml_node *value = NULL, *key;
	yaml_event_t event;

	if (key_event->type != YAML_SCALAR_EVENT) {
		wrong(reader, key_event->start_mark.line, "a key must be a plain text");
		return NULL;
	}
	key = read_scalar(reader, key_event);
	if (!key)
		return NULL;
	for (const struct jail_yaml_node *other = map->first; other; other = other->next) {
		if (strcmp(other->key, key->text))
			continue;
		jail_fail(reader->err, NULL, 0, "the key \"%s\" is there twice", key->text);
		jail_error_at(reader->err, reader->name, key->line, NULL);
		return NULL;
	}
	if (map->n >= MAX_KEYS) {
		wrong(reader, key_event->start_mark.line, "more keys than any part of a CDI specification has; is it one?");
		return NULL;
	}
	if (next_event(reader, &event))
		return NULL;
	value = read_node(reader, &event, depth);
	reader->yaml->delete_event(&event);
	if (value)
		value->key = key->text;
	return value;
}

static struct jail_yaml_node *read_children(struct reader *reader, const yaml_event_t *start, unsigned depth)
{
	bool map = start->type == YAML_MAPPING_START_EVENT;
	struct jail_yaml_node *node = new_node(reader, map ? JAIL_YAML_MAP : JAIL_YAML_LIST, start->start_mark.line);
	const struct jail_yaml_node **end = node ? &node->first : NULL;
	yaml_event_t event;

	if (node && depth == MAX_DEPTH) {
		wrong(reader, start->start_mark.line, "nested deeper than any CDI specification is; is it one?");
		return NULL;
	}
	while (node && !next_event(reader, &event)) {
		bool over = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
		struct jail_yaml_node *child = over ? NULL
			: map ? read_value(reader, node, &event, depth + 1) : read_node(reader, &event, depth + 1);
		reader->yaml->delete_event(&event);
		if (over)
			return node;
		if (!child)
			return NULL;
		*end = child;
		end = &child->next;
		node->n++;
	}
	return NULL;
}

static bool has_anchor_or_tag(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.anchor || event->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.anchor || event->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.anchor || event->data.mapping_start.tag;
	default:
		return event->type == YAML_ALIAS_EVENT;
	}
}

static struct jail_yaml_node *read_node(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
	/* A few hundred bytes of aliases can mean gigabytes; nobody who writes CDI uses them. */
	if (has_anchor_or_tag(event)) {
		wrong(reader, event->start_mark.line, "anchors (&), aliases (*) and tags (!) are not taken; write the "
		      "value out");
		return NULL;
	}
	if (event->type == YAML_SCALAR_EVENT)
		return read_scalar(reader, event);
	return read_children(reader, event, depth);
}

/* The next event, which must be of one type; the event itself is of no interest. */
static int expect(struct reader *reader, yaml_event_type_t type, const char *otherwise)
{
	yaml_event_t event;

	if (next_event(reader, &event))
		return -1;
	int result = event.type == type ? 0 : wrong(reader, event.start_mark.line, otherwise);
	reader->yaml->delete_event(&event);
	return result;
}

static struct jail_yaml_node *read_document(struct reader *reader)
{
	yaml_event_t event;

	if (expect(reader, YAML_STREAM_START_EVENT, "it does not start as a file does") ||
	    expect(reader, YAML_DOCUMENT_START_EVENT, "the file is empty") || next_event(reader, &event))
		return NULL;
	struct jail_yaml_node *root = read_node(reader, &event, 0);
	reader->yaml->delete_event(&event);
	if (!root || expect(reader, YAML_DOCUMENT_END_EVENT, "the document goes on after its end") ||
	    expect(reader, YAML_STREAM_END_EVENT, "the file holds a second document; one is taken"))
		return NULL;
	return root;
}

const struct jail_yaml_node *jail_yaml_parse(const char *text, size_t length, const char *name,
					     struct jail_arena *arena, struct jail_error *err)
{
	struct library yaml;
	struct reader reader = { .yaml = &yaml, .name = name, .arena = arena, .err = err };
	struct jail_yaml_node *root = NULL;

	if (library_open(&yaml, err))
		return NULL;
	if (yaml.initialize(&reader.parser)) {
		yaml.set_input(&reader.parser, (const unsigned char *)text, length);
		root = read_document(&reader);
		yaml.delete_parser(&reader.parser);
	} else {
		no_memory(&reader);
	}
	dlclose(yaml.handle);
	return root;
}
