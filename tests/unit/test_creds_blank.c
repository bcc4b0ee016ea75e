/* Unit tests of common/creds_blank.c: what upstream repeats of our request does not reach a client.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/creds_blank.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct creds creds = {.token = "can/ary+token=="};

static void becomes(const struct creds *c, const char *before, const char *after)
{
    char bytes[500];
    size_t len = strlen(before);
    memcpy(bytes, before, len + 1);
    creds_blank_echo(c, bytes, len);
    if (strcmp(bytes, after) != 0)
        fail_msg("%s: %s", before, bytes);
}

static void an_errors_token_is_blanked(void **state)
{
    (void)state;
    becomes(&creds, "<Code>InvalidToken</Code><Token-0>abc</Token-0><Token-0>d</Token-0>",
            "<Code>InvalidToken</Code><Token-0>---</Token-0><Token-0>-</Token-0>");
    becomes(&creds, "{\"t\":\"can/ary+token==\"}", "{\"t\":\"---------------\"}");
    becomes(&creds, "x=can%2Fary%2btoken%3D%3d&y", "x=-----------------------&y");
    becomes(&creds, "{\"t\":\"can\\/ary+token==\"}", "{\"t\":\"----------------\"}");
    becomes(&creds, "<p>can/ary&#43;token&#x3d;&#X3D;</p>", "<p>-----------------------------</p>");
    becomes(&creds, "can&#047;ary&#000043;token==", "can&#047;ary&#000043;token==");
    becomes(&creds, "can/ary&#43", "can/ary&#43");
    becomes(&creds, "can/ary&#;token== can/ary&#x;token== can/ary&#4a;",
            "can/ary&#;token== can/ary&#x;token== can/ary&#4a;");
    becomes(&creds, "can/ary+token=", "can/ary+token="); /* of another's */
    becomes(&creds, "can%2Fary%2btoken%3D%3", "can%2Fary%2btoken%3D%3");
    becomes(&creds, "can%2Fary%2btoken%3D%", "can%2Fary%2btoken%3D%");
    becomes(&creds, "", "");
    becomes(NULL, "can/ary+token==", "can/ary+token==");
}

static void what_was_signed_is_blanked(void **state)
{
    (void)state;
    becomes(NULL, "<StringToSign>AWS4\n</StringToSign><StringToSignBytes>41 57</StringToSignBytes>",
            "<StringToSign>-----</StringToSign><StringToSignBytes>-----</StringToSignBytes>");
    becomes(NULL, "<SignatureProvided>00ff</SignatureProvided><CanonicalRequest>GET /</Canon",
            "<SignatureProvided>----</SignatureProvided><CanonicalRequest>-----</Canon");
    becomes(NULL, "<CanonicalRequestBytes>47 45", "<CanonicalRequestBytes>-----");
    becomes(NULL, "Authorization: AWS4 Credential=A, Signature=00112233445566778899aabb\nHost: x",
            "Authorization: AWS4 Credential=A, Signature=------------------------\nHost: x");
    becomes(NULL, "?X-Amz-Signature%3D00112233445566778899aabb%26",
            "?X-Amz-Signature%3D---------------------------");
    becomes(NULL, "-customer-key: 00112233445566778899aa==\nx", "-customer-key: "
                  "------------------------\nx");
    becomes(NULL, "Signature=", "Signature=");
    becomes(NULL, "Signature=V4 is wanted", "Signature=V4 is wanted");
    becomes(NULL, "<Token-0", "<Token-0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_errors_token_is_blanked),
        cmocka_unit_test(what_was_signed_is_blanked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
