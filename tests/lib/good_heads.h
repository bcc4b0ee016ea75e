/* Request heads that must be accepted, each with what it says: the other half of bad_heads.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_GOOD_HEADS_H
#define HEADPOND_GOOD_HEADS_H

#include "tests/lib/bad_heads.h"

struct good_head {
    const char *bytes;
    size_t len;
    enum http_method method;
    const char *target, *host;       /* host: NULL = none */
    unsigned fields;
    enum http_framing framing;
    uint64_t length;
    bool keep_alive, expect_continue;
};

#define GET_OF(target_) \
    {LINE("GET " target_ " HTTP/1.1"), HTTP_GET, target_, "cache:9000", 1, HTTP_BODY_NONE, 0, \
     true, false}
#define HOSTED(host_) \
    {HOST_OF(host_), HTTP_GET, "/b/k", host_, 1, HTTP_BODY_NONE, 0, true, false}
/* With further fields, which say nothing about body or connection. */
#define PLAIN(fields_, count_) \
    {FIELDS(fields_), HTTP_GET, "/b/k", "cache:9000", 1 + (count_), HTTP_BODY_NONE, 0, true, false}
#define CONNECTED(version_, fields_, count_, keep_) \
    {HEAD("GET /b/k " version_ "\r\nHost: a\r\n" fields_ "\r\n"), HTTP_GET, "/b/k", "a", \
     1 + (count_), HTTP_BODY_NONE, 0, keep_, false}
#define COUNTED(value_, length_) \
    {UPLOAD("Content-Length:" value_ "\r\n"), HTTP_PUT, "/b/k", "cache:9000", 2, HTTP_BODY_LENGTH, \
     length_, true, false}
#define CHUNKED(field_) \
    {UPLOAD(field_ "\r\n"), HTTP_PUT, "/b/k", "cache:9000", 2, HTTP_BODY_CHUNKED, 0, true, false}
#define METHOD(name_) \
    {LINE(#name_ " /b/k HTTP/1.1"), HTTP_##name_, "/b/k", "cache:9000", 1, HTTP_BODY_NONE, 0, \
     true, false}
#define EXPECTED(version_, fields_, count_, length_, keep_, expect_) \
    {HEAD("PUT /b/k " version_ "\r\nHost: a\r\nContent-Length: " #length_ "\r\n" fields_ "\r\n"), \
     HTTP_PUT, "/b/k", "a", 2 + (count_), HTTP_BODY_LENGTH, length_, keep_, expect_}
#define TARGET_8191 X1000("12345678") X100("1") X10("123456789") "1"

static const struct good_head good_heads[] = {
    /* methods */
    METHOD(GET), METHOD(HEAD), METHOD(PUT), METHOD(POST), METHOD(DELETE), METHOD(OPTIONS),
    {LINE("OPTIONS * HTTP/1.1"), HTTP_OPTIONS, "*", "cache:9000", 1, HTTP_BODY_NONE, 0, true,
     false},

    /* targets: nothing is normalised, nothing decoded */
    GET_OF("/"), GET_OF("//"), GET_OF("/b"), GET_OF("/b/"), GET_OF("/b//k"), GET_OF("/b/./k"),
    GET_OF("/b/../k"), GET_OF("/../../etc/passwd"), GET_OF("/b/k?"), GET_OF("/b/k?x"),
    GET_OF("/b/k?x=y&z"), GET_OF("/b/k??x=?"), GET_OF("/b?list-type=2&prefix=a/b&delimiter=/"),
    GET_OF("/b/%"), GET_OF("/b/%zz"), GET_OF("/b/%00"), GET_OF("/b/%2e%2e%2f"), GET_OF("/b/a+b"),
    GET_OF("/b/a%20b"), GET_OF("/b/~-_."), GET_OF("/b/!$&'()*,;=:@"), GET_OF("/b/{a}|b^c`"),
    GET_OF("/b/\"a\\b<c>[d]"), GET_OF("/b/http://c/d"), GET_OF("/b/*"), GET_OF("/b/%F0%9F%98%80"),
    GET_OF("/" TARGET_8191),

    /* hosts */
    HOSTED("a"), HOSTED("cache.example.com"), HOSTED("cache.example.com."), HOSTED("cache:9000"),
    HOSTED("cache:"), HOSTED("127.0.0.1"), HOSTED("127.0.0.1:65535"), HOSTED("[::1]"),
    HOSTED("[::1]:9000"), HOSTED("[fe80::1%25eth0]:80"), HOSTED("under_score"),
    HOSTED("CASE.Mixed"),
    HOSTED("xn--caf-dma.example"), HOSTED("a-b~c"),
    {HEAD("GET / HTTP/1.0\r\n\r\n"), HTTP_GET, "/", NULL, 0, HTTP_BODY_NONE, 0, false, false},
    {HEAD("GET / HTTP/1.1\r\nhOsT:\t a \t\r\n\r\n"), HTTP_GET, "/", "a", 1, HTTP_BODY_NONE, 0,
     true, false},

    /* fields */
    PLAIN("X:\r\n", 1), PLAIN("X: \r\n", 1), PLAIN("X: \t \t\r\n", 1), PLAIN("X:a\r\n", 1),
    PLAIN("X: a b\tc\r\n", 1), PLAIN("X: \x80\xff\xc3\xa9\r\n", 1),
    PLAIN("x:a\r\nX:b\r\nx:c\r\n", 3),
    PLAIN("!#$%&'*+-.^_`|~09azAZ: a\r\n", 1),
    PLAIN("X: a:b: c\r\n", 1), PLAIN("X: \"a, b\"\r\n", 1),
    PLAIN("Content-Length-X: 5\r\nX-Content-Length: 6\r\n", 2),
    PLAIN("Hostx: a\r\nXHost: b\r\n", 2),
    PLAIN("TE: trailers\r\nTrailer: X\r\n", 2), PLAIN("Keep-Alive: timeout=5\r\n", 1),
    PLAIN("Expect: 200-ok\r\n", 1), PLAIN("Range: bytes=0-99\r\nIf-Range: \"e\"\r\n", 2),
    PLAIN(X10("a: b\r\n") X10("c: d\r\n"), 20), PLAIN("X: " X1000("0123456789") "\r\n", 1),
    PLAIN(X100("a") ": b\r\n", 1),

    /* the connection's fate */
    CONNECTED("HTTP/1.1", "", 0, true), CONNECTED("HTTP/1.0", "", 0, false),
    CONNECTED("HTTP/1.1", "Connection: close\r\n", 1, false),
    CONNECTED("HTTP/1.1", "Connection: CLOSE\r\n", 1, false),
    CONNECTED("HTTP/1.1", "Connection: keep-alive\r\n", 1, true),
    CONNECTED("HTTP/1.1", "Connection:\r\n", 1, true),
    CONNECTED("HTTP/1.1", "Connection: ,, close ,\r\n", 1, false),
    CONNECTED("HTTP/1.1", "Connection: " X10("a, ") X10("b,,") ",close\r\n", 1, false),
    CONNECTED("HTTP/1.1", "Connection: keep-alive, close\r\n", 1, false),
    CONNECTED("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n", 2, false),
    CONNECTED("HTTP/1.1", "Connection: closed\r\n", 1, true),
    CONNECTED("HTTP/1.1", "Connection: x-close\r\n", 1, true),
    CONNECTED("HTTP/1.1", "Proxy-Connection: close\r\n", 1, true),
    CONNECTED("HTTP/1.0", "Connection: keep-alive\r\n", 1, true),
    CONNECTED("HTTP/1.0", "Connection: Keep-Alive , x\r\n", 1, true),
    CONNECTED("HTTP/1.0", "Connection: keep-alive, close\r\n", 1, false),
    CONNECTED("HTTP/1.0", "Connection: close\r\n", 1, false),

    /* bodies */
    COUNTED(" 0", 0), COUNTED("5", 5), COUNTED("\t5 ", 5), COUNTED(" 0005", 5),
    COUNTED(" 9223372036854775807", 9223372036854775807u),
    COUNTED(" " X10("0000") "5", 5),
    CHUNKED("Transfer-Encoding: chunked"), CHUNKED("transfer-encoding:CHUNKED"),
    CHUNKED("TRANSFER-ENCODING: \tChunked\t "),
    EXPECTED("HTTP/1.1", "Expect: 100-continue\r\n", 1, 5, true, true),
    EXPECTED("HTTP/1.1", "expect: 100-CONTINUE\r\n", 1, 5, true, true),
    EXPECTED("HTTP/1.1", "Expect: 100-continue\r\nConnection: close\r\n", 2, 70000, false, true),
    EXPECTED("HTTP/1.1", "Expect: 100-continue, x\r\n", 1, 5, true, false),
    EXPECTED("HTTP/1.0", "Expect: 100-continue\r\n", 1, 5, false, false),
    {HEAD("POST /b?delete HTTP/1.0\r\nContent-Length: 7\r\nConnection: keep-alive\r\n\r\n"),
     HTTP_POST, "/b?delete", NULL, 2, HTTP_BODY_LENGTH, 7, true, false},
};

#endif
