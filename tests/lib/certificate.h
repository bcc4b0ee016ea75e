/* Self-signed certificates for tests: a name, any subject alternative names, a P-256 key.
 *
 * Life: certificate_write() makes key and certificate and writes both as PEM. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_CERTIFICATE_H
#define HEADPOND_TESTS_CERTIFICATE_H

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"

static bool certificate_extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    bool good = e && X509_add_ext(cert, e, -1) == 1;

    X509_EXTENSION_free(e);
    return good;
}

static X509 *certificate_make(const char *name, const char *san, EVP_PKEY *key)
{
    X509 *cert = X509_new();

    must(cert && key);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), (long)(random_u64() % 1000000000) + 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400 * 30);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const uint8_t *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    must(certificate_extend(cert, NID_basic_constraints, "critical,CA:TRUE") &&
         certificate_extend(cert, NID_subject_alt_name, san) &&
         X509_sign(cert, key, EVP_sha256()) > 0);
    return cert;
}

static FILE *certificate_create(const char *path, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return NULL;
    fchmod(fd, mode);
    return fdopen(fd, "w");
}

/* *out: the certificate, the caller's to free; may be NULL. */
static bool certificate_write(const char *name, const char *san, const char *cert_path,
                              const char *key_path, X509 **out)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = certificate_make(name, san, key);
    FILE *a = certificate_create(cert_path, 0644), *b = certificate_create(key_path, 0600);

    bool good = a && b && PEM_write_X509(a, cert) == 1 &&
                PEM_write_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL) == 1;
    if (a)
        good &= fclose(a) == 0;
    if (b)
        good &= fclose(b) == 0;
    EVP_PKEY_free(key);
    if (out)
        *out = cert;
    else
        X509_free(cert);
    return good;
}

#endif
