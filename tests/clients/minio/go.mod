module put_minio

go 1.25

require github.com/minio/minio-go/v7 v7.4.1
