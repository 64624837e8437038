/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for reading JSON with the library jansson: members that are text, and values that are released at the end
 * of a block. */
#ifndef REGISTRY_JSON_H
#define REGISTRY_JSON_H

#include <jansson.h>

static inline void json_release(json_t **json)
{
	json_decref(*json);
}
#define scoped_json __attribute__((cleanup(json_release))) json_t

/* "" where it is missing or no text. */
static inline const char *json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

#endif
