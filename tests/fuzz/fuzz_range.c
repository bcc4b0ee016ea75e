/* Range, Content-Range and dates: results lie inside the object, written dates are read back. The
 * first eight bytes are the object's size. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http_value.c"

#include "tests/fuzz/fuzz.h"

static void check_range(struct span field, uint64_t size)
{
    uint64_t from = 1, to = 0, first = 0, last = 0;
    enum http_range_form form = http_range_read(field, &first, &last);
    switch (http_range_apply(field, size, &from, &to)) {
    case HTTP_RANGE_OK:
        demand(from <= to && to < size);
        demand(form == HTTP_FORM_FROM || form == HTTP_FORM_FROM_TO || form == HTTP_FORM_SUFFIX);
        demand(form == HTTP_FORM_SUFFIX ? to == size - 1 : from == first);
        break;
    case HTTP_RANGE_UNSATISFIABLE:
        demand(form == HTTP_FORM_BAD || (form != HTTP_FORM_NONE && first >= size));
        break;
    case HTTP_RANGE_NONE:
        demand(form == HTTP_FORM_NONE || (form == HTTP_FORM_SUFFIX && size == 0));
        break;
    }
    demand(form != HTTP_FORM_FROM_TO || first <= last);
}

static void check_content_range(struct span value)
{
    uint64_t from = 0, to = 0, size = 0;
    if (http_content_range(value, &from, &to, &size) == OK)
        demand((from == 1 && to == 0) || (from <= to && to < size));
}

static void check_date(struct span value, uint64_t any)
{
    char out[HTTP_DATE_BYTES + 1], iso[25];
    uint64_t s = 0, again = 0;
    if (http_date_read(value, &s) == OK) {
        demand(s <= LAST_S + 1);     /* a leap second at the very end */
        any = s;
    }
    http_date_write(any, out);
    demand(strlen(out) == HTTP_DATE_BYTES);
    demand(http_date_read(span_of(out), &again) == OK && again == min_u64(any, LAST_S));
    iso_date_write(any, iso);
    demand(strlen(iso) == 24);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t size;
    if (len < sizeof(size))
        return 0;
    memcpy(&size, data, sizeof(size));
    len -= sizeof(size);
    char *text = malloc(len + 1);
    demand(text != NULL);
    memcpy(text + 1, data + sizeof(size), len);
    struct span field = span_make(text + 1, len);
    check_range(field, size);
    check_range(field, size % 1000);
    check_content_range(field);
    check_date(field, size);
    free(text);
    return 0;
}
