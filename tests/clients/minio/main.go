// Uploads by minio-go: signed streaming, with and without a signed trailer.
//
//	put_minio URL MANNER BUCKET KEY=FILE...
//
// MANNER is words joined by commas: single (one PUT each, else parts of 5 MiB), trailer (a checksum
// behind the body). Key pair: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Nothing is tried twice.
//
// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

func connect(at *url.URL, trailer bool) (*minio.Client, error) {
	return minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"),
			os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
		Secure:          at.Scheme == "https",
		Region:          "us-east-1",
		BucketLookup:    minio.BucketLookupPath,
		TrailingHeaders: trailer,
		MaxRetries:      1,
	})
}

func put(c *minio.Client, bucket, pair string, options minio.PutObjectOptions) error {
	key, path, _ := strings.Cut(pair, "=")
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = c.PutObject(context.Background(), bucket, key, f, about.Size(), options)
	return err
}

func run(args []string) error {
	at, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	single, trailer := strings.Contains(args[1], "single"), strings.Contains(args[1], "trailer")
	c, err := connect(at, trailer)
	if err != nil {
		return err
	}
	options := minio.PutObjectOptions{PartSize: 5 << 20, DisableMultipart: single}
	if trailer {
		options.Checksum = minio.ChecksumCRC32C
	}
	for _, pair := range args[3:] {
		if err := put(c, args[2], pair, options); err != nil {
			return fmt.Errorf("%s: %w", pair, err)
		}
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
