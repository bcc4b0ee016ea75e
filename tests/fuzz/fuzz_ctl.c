/* What answers the command line: any bytes instead of a control plane's answer end in a sentence or
 * in a status that a terminal can bear, and valid JSON survives being shown.
 *
 * The first byte even: an answer of HTTP; odd: the JSON alone, as if well answered. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/client.c"

#include "tests/fuzz/fuzz.h"

static char shown[64 * KIB];

/* Whole UTF-8 characters, no byte that commands a terminal but line ends and our own colours. */
static void check_printable(struct span text)
{
    while (text.len) {
        size_t n = span_utf8(text);
        unsigned char c = (unsigned char)text.at[0];
        demand(n > 0 && (c >= ' ' || c == '\n') && c != 0x7f);
        demand(!(n == 2 && c == 0xc2 && (unsigned char)text.at[1] < 0xa0)); /* C1 */
        text = span_from(text, n);
    }
}

static void show(const struct reply *r)
{
    const struct ctl ctl = {.json = false};
    char why[CTL_WHY_BYTES] = "";
    struct text t;
    json_t *object = reply_json(r, why);
    if (!object) {
        demand(why[0] && strlen(why) < sizeof(why));
        check_printable(span_of(why));
        return;
    }
    text_init(&t, shown, sizeof(shown));
    status_text(&ctl, object, &t);
    demand(strlen(shown) == t.len);
    if (!t.over)
        check_printable(text_span(&t));
    char *printed = json_dumps(object, JSON_COMPACT);
    demand(printed != NULL);
    json_t *again = json_loads(printed, 0, NULL);
    demand(json_equal(object, again));
    free(printed);
    json_decref(again);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[CTL_WHY_BYTES] = "";
    struct reply r = {.status = 200, .server = "http://127.0.0.1:9001"};
    struct wire w = {.server = r.server, .fd = -1, .why = why};
    if (size == 0)
        return 0;
    char *bytes = exact_copy(data + 1, size - 1);
    if (data[0] % 2) {
        r.body = bytes;
        r.len = size - 1;
        show(&r);
    } else {
        w.bytes = bytes;
        w.len = size - 1;
        if (read_answer(&w, &r) == OK) {
            demand(r.len <= w.len && r.status >= 100 && r.status < 600);
            show(&r);
            reply_free(&r);
        } else {
            demand(why[0]);
        }
    }
    exact_give(bytes);
    return 0;
}
