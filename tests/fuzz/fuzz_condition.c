/* Conditional requests: the verdict is that of S3's decision list, written here once more, and
 * dates have one meaning in whatever form they are written.
 *
 * Lines: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, Range, the
 * ETag; the first byte moves the object's date around. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/condition.c"

#include "tests/fuzz/fuzz.h"

enum { NOW_S = 1795166183 };

static struct span bare_of(struct span etag)
{
    bool quoted = etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"';
    return quoted ? span_make(etag.at + 1, etag.len - 2) : etag;
}

static bool same_etag(struct span wanted, struct span etag)
{
    return (wanted.len == 1 && wanted.at[0] == '*') || span_eq(bare_of(wanted), bare_of(etag));
}

/* -1: the field does not count; else whether the object was modified after it. */
static int modified_after(struct span field, uint64_t modified_s)
{
    uint64_t at_s;
    if (field.len == 0 || modified_s == 0 || http_date_read(field, &at_s) != OK || at_s > NOW_S)
        return -1;
    return modified_s > at_s;
}

static unsigned wanted_status(const struct s3_ask *a, struct span etag, uint64_t modified_s)
{
    if (a->if_match.len && !same_etag(a->if_match, etag))
        return 412;
    if (!a->if_match.len && modified_after(a->if_unmodified_since, modified_s) == 1)
        return 412;
    if (a->if_none_match.len)
        return same_etag(a->if_none_match, etag) ? 304 : 200;
    return modified_after(a->if_modified_since, modified_s) == 0 ? 304 : 200;
}

static void check_range(const struct s3_ask *a, struct span etag, uint64_t modified_s)
{
    struct span got = s3_range(a, etag, modified_s);
    uint64_t date_s;
    bool applies = a->if_range.len == 0;
    if (!applies && http_date_read(a->if_range, &date_s) == OK)
        applies = modified_s > 0 && date_s == modified_s;
    else if (!applies)
        applies = span_eq(bare_of(a->if_range), bare_of(etag));
    demand(span_eq(got, applies ? a->range : span_of("")));
}

/* A date that is read and written is read as the same; and as each older form. */
static void check_forms(struct span field)
{
    static const char *const days[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char *const long_days[] = {"Thursday", "Friday",  "Saturday", "Sunday",
                                            "Monday",   "Tuesday", "Wednesday"};
    char fixed[HTTP_DATE_BYTES + 1], other[64];
    uint64_t s, again;
    if (http_date_read(field, &s) != OK)
        return;
    demand(field.len >= 24 && field.len <= 33);
    http_date_write(s, fixed);
    demand(http_date_read(span_of(fixed), &again) == OK);
    s = again;                       /* without a leap second behind the last year */
    unsigned day = (unsigned)(s / 86400 % 7);
    demand(memcmp(fixed, days[day], 3) == 0);
    int day_of_month = (fixed[5] - '0') * 10 + fixed[6] - '0';
    snprintf(other, sizeof(other), "%.3s %.3s %2d %.8s %.4s", fixed, fixed + 8, day_of_month,
             fixed + 17, fixed + 12);
    demand(http_date_read(span_of(other), &again) == OK && again == s);
    snprintf(other, sizeof(other), "%s, %.2s-%.3s-%.2s %.8s GMT", long_days[day], fixed + 5,
             fixed + 8, fixed + 14, fixed + 17);
    if (s < 3155760000)              /* two digits name a year up to 2069 */
        demand(http_date_read(span_of(other), &again) == OK && again == s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed f = {data, size};
    struct s3_ask a = {0};
    uint64_t modified_s = 1795000000 + feed_below(&f, 4) * 60, date_s = 0;
    const char *condition = NULL;
    a.if_match = feed_line(&f);
    a.if_none_match = feed_line(&f);
    a.if_modified_since = feed_line(&f);
    a.if_unmodified_since = feed_line(&f);
    a.if_range = feed_line(&f);
    a.range = feed_line(&f);
    struct span etag = feed_line(&f);
    if (etag.len == 0)
        etag = span_of("\"e\"");
    if (http_date_read(a.if_range, &date_s) == OK && (size & 1))
        modified_s = date_s;
    uint16_t status = s3_conditions(&a, etag, modified_s, NOW_S, &condition);
    demand(status == wanted_status(&a, etag, modified_s));
    demand((status == 412) == (condition != NULL));
    check_range(&a, etag, modified_s);
    check_forms(a.if_modified_since);
    check_forms(a.if_unmodified_since);
    check_forms(a.if_range);
    return 0;
}
