/* Request heads that must be refused, each with the verdict; for the parser and for tests over a
 * socket. Each is refused whatever follows it, and every prefix of it is either incomplete or
 * refused in the same way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_BAD_HEADS_H
#define HEADPOND_BAD_HEADS_H

#include "http.h"

struct bad_head {
    const char *name;
    const char *bytes;
    size_t len;
    enum http_verdict verdict;
};

#define X10(s) s s s s s s s s s s
#define X100(s) X10(s) X10(s) X10(s) X10(s) X10(s) X10(s) X10(s) X10(s) X10(s) X10(s)
#define X1000(s) X10(X100(s))
#define HEAD(bytes_) bytes_, sizeof(bytes_) - 1
/* A whole head around some fields, or around a target. */
#define FIELDS(fields_) HEAD("GET /b/k HTTP/1.1\r\nHost: cache:9000\r\n" fields_ "\r\n")
#define UPLOAD(fields_) HEAD("PUT /b/k HTTP/1.1\r\nHost: cache:9000\r\n" fields_ "\r\n")
#define LINE(line_) HEAD(line_ "\r\nHost: cache:9000\r\n\r\n")
#define TARGET_OF(target_) LINE("GET " target_ " HTTP/1.1")
#define HOST_OF(host_) HEAD("GET /b/k HTTP/1.1\r\nHost: " host_ "\r\n\r\n")

static const struct bad_head bad_heads[] = {
    /* line ends */
    {"bare LF ends all lines", HEAD("GET /b/k HTTP/1.1\nHost: a\n\n"), HTTP_BAD},
    {"bare LF ends the request line", HEAD("GET /b/k HTTP/1.1\nHost: a\r\n\r\n"), HTTP_BAD},
    {"bare LF ends a field", HEAD("GET /b/k HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), HTTP_BAD},
    {"bare LF ends the head", HEAD("GET /b/k HTTP/1.1\r\nHost: a\r\n\nGET /"), HTTP_BAD},
    {"bare CR ends the request line", HEAD("GET /b/k HTTP/1.1\rHost: a\r\n\r\n"), HTTP_BAD},
    {"bare CR in a value", FIELDS("X: a\rb\r\n"), HTTP_BAD},
    {"bare CR ends a field", FIELDS("X: a\rY: b\r\n"), HTTP_BAD},
    {"bare CR in place of the empty line", HEAD("GET / HTTP/1.1\r\nHost: a\r\n\rX"), HTTP_BAD},
    {"CR CR LF", FIELDS("X: a\r\r\n"), HTTP_BAD},
    {"empty line before the request", HEAD("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), HTTP_BAD},
    {"LF before the request", HEAD("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), HTTP_BAD},
    {"blank before the request", HEAD(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), HTTP_BAD},

    /* field lines */
    {"NUL in a value", FIELDS("X: a\0b\r\n"), HTTP_BAD},
    {"NUL in a name", FIELDS("X\0Y: b\r\n"), HTTP_BAD},
    {"NUL after the head's last value", FIELDS("X: a\0\r\n"), HTTP_BAD},
    {"vertical tab in a value", FIELDS("X: a\vb\r\n"), HTTP_BAD},
    {"escape character in a long value", FIELDS("X: aaaaaaaaaaaaaaaaaaa\x1b[0m\r\n"), HTTP_BAD},
    {"DEL in a value", FIELDS("X: a\x7f" "b\r\n"), HTTP_BAD},
    {"obs-fold with a blank", FIELDS("X: a\r\n b\r\n"), HTTP_BAD},
    {"obs-fold with a tab", FIELDS("X: a\r\n\tb\r\n"), HTTP_BAD},
    {"obs-fold of an empty value", FIELDS("Content-Length:\r\n 5\r\n"), HTTP_BAD},
    {"blank before the first field", HEAD("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), HTTP_BAD},
    {"blank before the colon", FIELDS("X : a\r\n"), HTTP_BAD},
    {"tab before the colon", FIELDS("X\t: a\r\n"), HTTP_BAD},
    {"blank before the colon of the length", FIELDS("Content-Length : 5\r\n"), HTTP_BAD},
    {"blank inside a name", FIELDS("X Y: a\r\n"), HTTP_BAD},
    {"empty name", FIELDS(": a\r\n"), HTTP_BAD},
    {"line without a colon", FIELDS("justtext\r\n"), HTTP_BAD},
    {"bracket in a name", FIELDS("X(a): b\r\n"), HTTP_BAD},
    {"quote in a name", FIELDS("X\"a: b\r\n"), HTTP_BAD},
    {"slash in a name", FIELDS("X/a: b\r\n"), HTTP_BAD},
    {"at sign in a name", FIELDS("X@a: b\r\n"), HTTP_BAD},
    {"a name that is not ASCII", FIELDS("X\xc3\xa9: b\r\n"), HTTP_BAD},

    /* request line */
    {"two blanks before the target", LINE("GET  /b/k HTTP/1.1"), HTTP_BAD},
    {"two blanks before the version", LINE("GET /b/k  HTTP/1.1"), HTTP_BAD},
    {"tab before the target", LINE("GET\t/b/k HTTP/1.1"), HTTP_BAD},
    {"tab before the version", LINE("GET /b/k\tHTTP/1.1"), HTTP_BAD},
    {"blank behind the version", LINE("GET /b/k HTTP/1.1 "), HTTP_BAD},
    {"text behind the version", LINE("GET /b/k HTTP/1.1 x"), HTTP_BAD},
    {"HTTP/0.9", HEAD("GET /b/k\r\n"), HTTP_BAD},
    {"HTTP/0.9 with a blank", HEAD("GET /b/k \r\n"), HTTP_BAD},
    {"HTTP/0.9 spelled out", LINE("GET /b/k HTTP/0.9"), HTTP_NO_VERSION},
    {"lower-case version", LINE("GET /b/k http/1.1"), HTTP_BAD},
    {"HTTP/1.2", LINE("GET /b/k HTTP/1.2"), HTTP_NO_VERSION},
    {"HTTP/2.0", LINE("GET /b/k HTTP/2.0"), HTTP_NO_VERSION},
    {"HTTP/2", LINE("GET /b/k HTTP/2"), HTTP_BAD},
    {"HTTP/1.10", LINE("GET /b/k HTTP/1.10"), HTTP_BAD},
    {"HTTP/11.1", LINE("GET /b/k HTTP/11.1"), HTTP_BAD},
    {"HTTP/1,1", LINE("GET /b/k HTTP/1,1"), HTTP_BAD},
    {"HTTP/+1.1", LINE("GET /b/k HTTP/+1.1"), HTTP_BAD},
    {"another protocol", LINE("GET /b/k ICAP/1.0"), HTTP_BAD},
    {"no method", LINE(" /b/k HTTP/1.1"), HTTP_BAD},
    {"no target", LINE("GET HTTP/1.1"), HTTP_BAD},
    {"unknown method", LINE("PATCH /b/k HTTP/1.1"), HTTP_NO_METHOD},
    {"lower-case method", LINE("get /b/k HTTP/1.1"), HTTP_NO_METHOD},
    {"method of 1000 bytes", LINE(X1000("A") " / HTTP/1.1"), HTTP_NO_METHOD},
    {"bad bytes in the method", LINE("G\x01T /b/k HTTP/1.1"), HTTP_BAD},
    {"bracket in the method", LINE("GET{} /b/k HTTP/1.1"), HTTP_BAD},
    {"HTTP/2 preface", HEAD("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HTTP_NO_METHOD},
    {"TLS ClientHello", HEAD("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), HTTP_BAD},
    {"PROXY protocol", HEAD("PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n"), HTTP_NO_METHOD},

    /* target */
    {"absolute-form", TARGET_OF("http://cache:9000/b/k"), HTTP_BAD},
    {"absolute-form of another host", TARGET_OF("http://169.254.169.254/latest/"), HTTP_BAD},
    {"CONNECT", LINE("CONNECT cache:9000 HTTP/1.1"), HTTP_NO_METHOD},
    {"authority-form", TARGET_OF("cache:9000"), HTTP_BAD},
    {"target without a slash", TARGET_OF("b/k"), HTTP_BAD},
    {"target that is a query", TARGET_OF("?list-type=2"), HTTP_BAD},
    {"asterisk in a GET", TARGET_OF("*"), HTTP_BAD},
    {"more than an asterisk", LINE("OPTIONS *x HTTP/1.1"), HTTP_BAD},
    {"fragment", TARGET_OF("/b/k#part"), HTTP_BAD},
    {"raw blank in the target", TARGET_OF("/b/a b"), HTTP_BAD},
    {"raw tab in the target", TARGET_OF("/b/a\tb"), HTTP_BAD},
    {"NUL in the target", TARGET_OF("/b/a\0b"), HTTP_BAD},
    {"control byte in the target", TARGET_OF("/b/a\x01" "b"), HTTP_BAD},
    {"CR in the target", TARGET_OF("/b/a\rX"), HTTP_BAD},
    {"DEL in the target", TARGET_OF("/b/a\x7f"), HTTP_BAD},
    {"UTF-8 in the target", TARGET_OF("/b/\xc3\xa9"), HTTP_BAD},
    {"byte 0xff in the target", TARGET_OF("/b/\xff"), HTTP_BAD},

    /* Host */
    {"no Host in 1.1", HEAD("GET /b/k HTTP/1.1\r\nAccept: a\r\n\r\n"), HTTP_BAD},
    {"no field at all", HEAD("GET /b/k HTTP/1.1\r\n\r\n"), HTTP_BAD},
    {"two Hosts", HOST_OF("a\r\nHost: b"), HTTP_BAD},
    {"two equal Hosts", HOST_OF("a\r\nhOST: a"), HTTP_BAD},
    {"two Hosts in 1.0", HEAD("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), HTTP_BAD},
    {"empty Host", HOST_OF(""), HTTP_BAD},
    {"Host with a blank", HOST_OF("a b"), HTTP_BAD},
    {"Host with a control byte", HOST_OF("a\x02" "b"), HTTP_BAD},
    {"Host list", HOST_OF("a, b"), HTTP_BAD},
    {"Host with a path", HOST_OF("a/b"), HTTP_BAD},
    {"Host with a user", HOST_OF("u@a"), HTTP_BAD},
    {"Host that is only a port", HOST_OF(":80"), HTTP_BAD},
    {"Host with a port that is no number", HOST_OF("a:8o"), HTTP_BAD},
    {"Host with two ports", HOST_OF("a:1:2"), HTTP_BAD},
    {"Host with an open bracket", HOST_OF("[::1"), HTTP_BAD},
    {"Host with text behind the bracket", HOST_OF("[::1]x"), HTTP_BAD},
    {"Host that is not ASCII", HOST_OF("caf\xc3\xa9"), HTTP_BAD},

    /* framing */
    {"length and encoding", UPLOAD("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
     HTTP_BAD},
    {"encoding and length", UPLOAD("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
     HTTP_BAD},
    {"length zero and encoding", UPLOAD("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
     HTTP_BAD},
    {"two different lengths", UPLOAD("Content-Length: 5\r\nContent-Length: 6\r\n"), HTTP_BAD},
    {"two equal lengths", UPLOAD("Content-Length: 5\r\ncontent-length: 5\r\n"), HTTP_BAD},
    {"length with a plus", UPLOAD("Content-Length: +5\r\n"), HTTP_BAD},
    {"negative length", UPLOAD("Content-Length: -1\r\n"), HTTP_BAD},
    {"length 5 5", UPLOAD("Content-Length: 5 5\r\n"), HTTP_BAD},
    {"length 5,5", UPLOAD("Content-Length: 5,5\r\n"), HTTP_BAD},
    {"hexadecimal length", UPLOAD("Content-Length: 0x5\r\n"), HTTP_BAD},
    {"length with a fraction", UPLOAD("Content-Length: 5.0\r\n"), HTTP_BAD},
    {"length of 2^63", UPLOAD("Content-Length: 9223372036854775808\r\n"), HTTP_BAD},
    {"length of 2^64", UPLOAD("Content-Length: 18446744073709551616\r\n"), HTTP_BAD},
    {"length of 2^64 + 5", UPLOAD("Content-Length: 18446744073709551621\r\n"), HTTP_BAD},
    {"length of 40 digits", UPLOAD("Content-Length: " X10("9999") "\r\n"), HTTP_BAD},
    {"empty length", UPLOAD("Content-Length:\r\n"), HTTP_BAD},
    {"blank length", UPLOAD("Content-Length:   \r\n"), HTTP_BAD},
    {"encoding gzip", UPLOAD("Transfer-Encoding: gzip\r\n"), HTTP_BAD},
    {"encoding identity", UPLOAD("Transfer-Encoding: identity\r\n"), HTTP_BAD},
    {"encoding chunked, chunked", UPLOAD("Transfer-Encoding: chunked, chunked\r\n"), HTTP_BAD},
    {"encoding gzip, chunked", UPLOAD("Transfer-Encoding: gzip, chunked\r\n"), HTTP_BAD},
    {"encoding chunked, identity", UPLOAD("Transfer-Encoding: chunked, identity\r\n"), HTTP_BAD},
    {"encoding with an empty element", UPLOAD("Transfer-Encoding: ,chunked\r\n"), HTTP_BAD},
    {"encoding with a parameter", UPLOAD("Transfer-Encoding: chunked;q=1\r\n"), HTTP_BAD},
    {"encoding in quotes", UPLOAD("Transfer-Encoding: \"chunked\"\r\n"), HTTP_BAD},
    {"encoding with a vertical tab", UPLOAD("Transfer-Encoding: \vchunked\r\n"), HTTP_BAD},
    {"encoding xchunked", UPLOAD("Transfer-Encoding: xchunked\r\n"), HTTP_BAD},
    {"empty encoding", UPLOAD("Transfer-Encoding:\r\n"), HTTP_BAD},
    {"two encodings", UPLOAD("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
     HTTP_BAD},
    {"encoding in 1.0", HEAD("PUT /b/k HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
     HTTP_BAD},

    /* upgrades */
    {"h2c upgrade", FIELDS("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), HTTP_BAD},
    {"websocket upgrade", FIELDS("Upgrade: websocket\r\nConnection: upgrade\r\n"), HTTP_BAD},
    {"Upgrade without Connection", FIELDS("Upgrade: h2c\r\n"), HTTP_BAD},

    /* limits */
    {"target of 8193 bytes", TARGET_OF("/" X1000("12345678") X100("1") X10("123456789") "12"),
     HTTP_TOO_LONG},
    {"query of 9000 bytes", TARGET_OF("/b?" X1000("123456789")), HTTP_TOO_LONG},
    {"target of 64 KiB", TARGET_OF("/" X1000(X10("123456")) X1000("123456")), HTTP_TOO_LONG},
    {"33 options of Connection", FIELDS("Connection: " X10("a, ") X10("b,,") ",,a\r\n"), HTTP_BAD},
    {"33 options of several Connections", FIELDS(X10(X10("Connection: a\r\n"))), HTTP_BAD},
    {"Connection of commas", FIELDS("Connection: " X1000(",,,,,,,,,,,,,,,") "\r\n"), HTTP_BAD},
    {"101 fields", FIELDS(X100("a: b\r\n")), HTTP_TOO_LARGE},
    {"1000 fields", FIELDS(X1000("a: b\r\n")), HTTP_TOO_LARGE},
    {"head over 16 KiB", FIELDS(X10(X10("A: " X100("1234567890") "\r\n"))), HTTP_TOO_LARGE},
    {"name over 16 KiB", FIELDS(X1000("12345678901234567890") ": a\r\n"), HTTP_TOO_LARGE},
    {"value over 16 KiB", FIELDS("A: " X1000("12345678901234567890") "\r\n"), HTTP_TOO_LARGE},
    {"blanks over 16 KiB", FIELDS("A: " X1000("                    ") "\r\n"), HTTP_TOO_LARGE},
    {"value of 64 KiB", FIELDS("A: " X1000(X10("123456")) X1000("123456") "\r\n"), HTTP_TOO_LARGE},
};

#endif
