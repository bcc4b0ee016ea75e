/* Every operation of S3, one row each:
 * OPERATION(name, method, level, keys, header, action, label, text)
 *
 *   keys    what tells it apart in the query: "a&b" all must be present, "a=v" with that value; the
 *   first is its
 *           sub-resource. A text that begins with '/' is instead a list of exact paths, cut by '|';
 *           one that ends in '/' stands for all below it, but for the root. NULL: none.
 *   header  fields that must be there ("a,b"), "name=start" one whose value begins so; an x-amz-*
 *   name may also
 *           come as a query parameter, as in a presigned URL. NULL: none.
 *   action  S3_SERVE        from the cache, filled on a miss
 *           S3_RELAY        a read, passed through, signed anew
 *           S3_PASS         a change, passed through, that nothing we hold can show: parts of an
 *                           upload, configuration of a bucket
 *           S3_WRITE        a change of the object: doubt on what is held of it
 *           S3_WRITE_BUCKET a change that may show in any object of the bucket: doubt on all
 *           S3_WRITE_KEYS   a change of the objects that its body names
 *           S3_REFUSE       501 NotImplemented for good (S3 Express sessions, Object Lambda, forms)
 *           S3_PROBE        answered by us: health, without authentication
 *           S3_PLAN         answered by us: what loaders say that they will read
 *   label   the value of the metric label `op`
 *   text    what it does, continuing its name
 *
 * Of the rows that fit, the one with the most keys and headers is taken, the first of equals. */
/* SPDX-License-Identifier: Apache-2.0 */
OPERATION(AbortMultipartUpload, HTTP_DELETE, S3_OBJECT, "uploadId", NULL, S3_PASS, OP_MULTIPART,
          "drops the parts of an upload")
OPERATION(CompleteMultipartUpload, HTTP_POST, S3_OBJECT, "uploadId", NULL, S3_WRITE, OP_MULTIPART,
          "makes an object of uploaded parts")
OPERATION(CopyObject, HTTP_PUT, S3_OBJECT, NULL, "x-amz-copy-source", S3_WRITE, OP_COPY,
          "copies an object inside the store")
OPERATION(CreateBucket, HTTP_PUT, S3_BUCKET, NULL, NULL, S3_PASS, OP_OTHER, "makes a bucket")
OPERATION(CreateBucketMetadataConfiguration, HTTP_POST, S3_BUCKET, "metadataConfiguration", NULL,
          S3_PASS, OP_OTHER, "turns metadata tables of a bucket on")
OPERATION(CreateBucketMetadataTableConfiguration, HTTP_POST, S3_BUCKET, "metadataTable", NULL,
          S3_PASS, OP_OTHER, "turns the metadata table of a bucket on (version 1)")
OPERATION(CreateMultipartUpload, HTTP_POST, S3_OBJECT, "uploads", NULL, S3_PASS, OP_MULTIPART,
          "begins an upload in parts")
OPERATION(CreateSession, HTTP_GET, S3_BUCKET, "session", NULL, S3_REFUSE, OP_OTHER,
          "opens a session of a directory bucket (S3 Express)")
OPERATION(DeleteBucket, HTTP_DELETE, S3_BUCKET, NULL, NULL, S3_WRITE_BUCKET, OP_OTHER,
          "removes an empty bucket")
OPERATION(DeleteBucketAnalyticsConfiguration, HTTP_DELETE, S3_BUCKET, "analytics&id", NULL,
          S3_PASS, OP_OTHER, "removes an analytics configuration")
OPERATION(DeleteBucketCors, HTTP_DELETE, S3_BUCKET, "cors", NULL, S3_PASS, OP_OTHER,
          "removes the CORS rules of a bucket")
OPERATION(DeleteBucketEncryption, HTTP_DELETE, S3_BUCKET, "encryption", NULL, S3_PASS, OP_OTHER,
          "resets the default encryption of a bucket")
OPERATION(DeleteBucketIntelligentTieringConfiguration, HTTP_DELETE, S3_BUCKET,
          "intelligent-tiering&id", NULL, S3_PASS, OP_OTHER,
          "removes an Intelligent-Tiering configuration")
OPERATION(DeleteBucketInventoryConfiguration, HTTP_DELETE, S3_BUCKET, "inventory&id", NULL,
          S3_PASS, OP_OTHER, "removes an inventory configuration")
OPERATION(DeleteBucketLifecycle, HTTP_DELETE, S3_BUCKET, "lifecycle", NULL, S3_WRITE_BUCKET,
          OP_OTHER,
          "removes the lifecycle rules of a bucket")
OPERATION(DeleteBucketMetadataConfiguration, HTTP_DELETE, S3_BUCKET, "metadataConfiguration", NULL,
          S3_PASS, OP_OTHER, "turns metadata tables of a bucket off")
OPERATION(DeleteBucketMetadataTableConfiguration, HTTP_DELETE, S3_BUCKET, "metadataTable", NULL,
          S3_PASS, OP_OTHER, "turns the metadata table of a bucket off (version 1)")
OPERATION(DeleteBucketMetricsConfiguration, HTTP_DELETE, S3_BUCKET, "metrics&id", NULL, S3_PASS,
          OP_OTHER, "removes a metrics configuration")
OPERATION(DeleteBucketOwnershipControls, HTTP_DELETE, S3_BUCKET, "ownershipControls", NULL,
          S3_WRITE_BUCKET, OP_OTHER, "removes the ownership controls of a bucket")
OPERATION(DeleteBucketPolicy, HTTP_DELETE, S3_BUCKET, "policy", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "removes the policy of a bucket")
OPERATION(DeleteBucketReplication, HTTP_DELETE, S3_BUCKET, "replication", NULL, S3_WRITE_BUCKET,
          OP_OTHER,
          "removes the replication rules of a bucket")
OPERATION(DeleteBucketTagging, HTTP_DELETE, S3_BUCKET, "tagging", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "removes the tags of a bucket")
OPERATION(DeleteBucketWebsite, HTTP_DELETE, S3_BUCKET, "website", NULL, S3_PASS, OP_OTHER,
          "removes the website configuration of a bucket")
OPERATION(DeleteObject, HTTP_DELETE, S3_OBJECT, NULL, NULL, S3_WRITE, OP_DELETE,
          "removes an object or one version of it")
OPERATION(DeleteObjectAnnotation, HTTP_DELETE, S3_OBJECT, "annotation&annotationName", NULL,
          S3_WRITE, OP_OTHER, "removes an annotation of an object")
OPERATION(DeleteObjectTagging, HTTP_DELETE, S3_OBJECT, "tagging", NULL, S3_WRITE, OP_OTHER,
          "removes the tags of an object")
OPERATION(DeleteObjects, HTTP_POST, S3_BUCKET, "delete", NULL, S3_WRITE_KEYS, OP_DELETE,
          "removes up to 1000 objects")
OPERATION(DeletePublicAccessBlock, HTTP_DELETE, S3_BUCKET, "publicAccessBlock", NULL,
          S3_WRITE_BUCKET,
          OP_OTHER, "removes the public access block of a bucket")
OPERATION(GetBucketAbac, HTTP_GET, S3_BUCKET, "abac", NULL, S3_RELAY, OP_OTHER,
          "reads whether a bucket uses attribute-based access")
OPERATION(GetBucketAccelerateConfiguration, HTTP_GET, S3_BUCKET, "accelerate", NULL, S3_RELAY,
          OP_OTHER, "reads the transfer acceleration of a bucket")
OPERATION(GetBucketAcl, HTTP_GET, S3_BUCKET, "acl", NULL, S3_RELAY, OP_OTHER,
          "reads the ACL of a bucket")
OPERATION(GetBucketAnalyticsConfiguration, HTTP_GET, S3_BUCKET, "analytics&id", NULL,
          S3_RELAY, OP_OTHER, "reads one analytics configuration")
OPERATION(GetBucketCors, HTTP_GET, S3_BUCKET, "cors", NULL, S3_RELAY, OP_OTHER,
          "reads the CORS rules of a bucket")
OPERATION(GetBucketEncryption, HTTP_GET, S3_BUCKET, "encryption", NULL, S3_RELAY, OP_OTHER,
          "reads the default encryption of a bucket")
OPERATION(GetBucketIntelligentTieringConfiguration, HTTP_GET, S3_BUCKET, "intelligent-tiering&id",
          NULL, S3_RELAY, OP_OTHER, "reads one Intelligent-Tiering configuration")
OPERATION(GetBucketInventoryConfiguration, HTTP_GET, S3_BUCKET, "inventory&id", NULL,
          S3_RELAY, OP_OTHER, "reads one inventory configuration")
OPERATION(GetBucketLifecycleConfiguration, HTTP_GET, S3_BUCKET, "lifecycle", NULL, S3_RELAY,
          OP_OTHER, "reads the lifecycle rules of a bucket")
OPERATION(GetBucketLocation, HTTP_GET, S3_BUCKET, "location", NULL, S3_RELAY, OP_OTHER,
          "reads the region of a bucket")
OPERATION(GetBucketLogging, HTTP_GET, S3_BUCKET, "logging", NULL, S3_RELAY, OP_OTHER,
          "reads the access logging of a bucket")
OPERATION(GetBucketMetadataConfiguration, HTTP_GET, S3_BUCKET, "metadataConfiguration", NULL,
          S3_RELAY, OP_OTHER, "reads the metadata tables of a bucket")
OPERATION(GetBucketMetadataTableConfiguration, HTTP_GET, S3_BUCKET, "metadataTable", NULL,
          S3_RELAY, OP_OTHER, "reads the metadata table of a bucket (version 1)")
OPERATION(GetBucketMetricsConfiguration, HTTP_GET, S3_BUCKET, "metrics&id", NULL, S3_RELAY,
          OP_OTHER, "reads one metrics configuration")
OPERATION(GetBucketNotificationConfiguration, HTTP_GET, S3_BUCKET, "notification", NULL,
          S3_RELAY, OP_OTHER, "reads the notifications of a bucket")
OPERATION(GetBucketOwnershipControls, HTTP_GET, S3_BUCKET, "ownershipControls", NULL,
          S3_RELAY, OP_OTHER, "reads the ownership controls of a bucket")
OPERATION(GetBucketPolicy, HTTP_GET, S3_BUCKET, "policy", NULL, S3_RELAY, OP_OTHER,
          "reads the policy of a bucket")
OPERATION(GetBucketPolicyStatus, HTTP_GET, S3_BUCKET, "policyStatus", NULL, S3_RELAY,
          OP_OTHER, "reads whether a bucket is public")
OPERATION(GetBucketReplication, HTTP_GET, S3_BUCKET, "replication", NULL, S3_RELAY, OP_OTHER,
          "reads the replication rules of a bucket")
OPERATION(GetBucketRequestPayment, HTTP_GET, S3_BUCKET, "requestPayment", NULL, S3_RELAY,
          OP_OTHER, "reads who pays for requests to a bucket")
OPERATION(GetBucketTagging, HTTP_GET, S3_BUCKET, "tagging", NULL, S3_RELAY, OP_OTHER,
          "reads the tags of a bucket")
OPERATION(GetBucketVersioning, HTTP_GET, S3_BUCKET, "versioning", NULL, S3_RELAY, OP_OTHER,
          "reads the versioning state of a bucket")
OPERATION(GetBucketWebsite, HTTP_GET, S3_BUCKET, "website", NULL, S3_RELAY, OP_OTHER,
          "reads the website configuration of a bucket")
OPERATION(GetObject, HTTP_GET, S3_OBJECT, NULL, NULL, S3_SERVE, OP_GET,
          "reads an object, a range or a part of it")
OPERATION(GetObjectAcl, HTTP_GET, S3_OBJECT, "acl", NULL, S3_RELAY, OP_OTHER,
          "reads the ACL of an object")
OPERATION(GetObjectAnnotation, HTTP_GET, S3_OBJECT, "annotation&annotationName", NULL,
          S3_RELAY, OP_OTHER, "reads an annotation of an object")
OPERATION(GetObjectAttributes, HTTP_GET, S3_OBJECT, "attributes", "x-amz-object-attributes",
          S3_RELAY, OP_OTHER, "reads size, checksums and parts of an object")
OPERATION(GetObjectLegalHold, HTTP_GET, S3_OBJECT, "legal-hold", NULL, S3_RELAY, OP_OTHER,
          "reads the legal hold of an object")
OPERATION(GetObjectLockConfiguration, HTTP_GET, S3_BUCKET, "object-lock", NULL, S3_RELAY,
          OP_OTHER, "reads the object lock of a bucket")
OPERATION(GetObjectRetention, HTTP_GET, S3_OBJECT, "retention", NULL, S3_RELAY, OP_OTHER,
          "reads the retention of an object")
OPERATION(GetObjectTagging, HTTP_GET, S3_OBJECT, "tagging", NULL, S3_RELAY, OP_OTHER,
          "reads the tags of an object")
OPERATION(GetObjectTorrent, HTTP_GET, S3_OBJECT, "torrent", NULL, S3_RELAY, OP_OTHER,
          "reads the torrent file of an object")
OPERATION(GetPublicAccessBlock, HTTP_GET, S3_BUCKET, "publicAccessBlock", NULL, S3_RELAY,
          OP_OTHER, "reads the public access block of a bucket")
OPERATION(HeadBucket, HTTP_HEAD, S3_BUCKET, NULL, NULL, S3_RELAY, OP_OTHER,
          "asks whether a bucket exists and where")
OPERATION(HeadObject, HTTP_HEAD, S3_OBJECT, NULL, NULL, S3_SERVE, OP_HEAD,
          "reads the headers of an object")
OPERATION(ListBucketAnalyticsConfigurations, HTTP_GET, S3_BUCKET, "analytics", NULL, S3_RELAY,
          OP_OTHER, "lists analytics configurations")
OPERATION(ListBucketIntelligentTieringConfigurations, HTTP_GET, S3_BUCKET, "intelligent-tiering",
          NULL, S3_RELAY, OP_OTHER, "lists Intelligent-Tiering configurations")
OPERATION(ListBucketInventoryConfigurations, HTTP_GET, S3_BUCKET, "inventory", NULL, S3_RELAY,
          OP_OTHER, "lists inventory configurations")
OPERATION(ListBucketMetricsConfigurations, HTTP_GET, S3_BUCKET, "metrics", NULL, S3_RELAY,
          OP_OTHER, "lists metrics configurations")
OPERATION(ListBuckets, HTTP_GET, S3_SERVICE, NULL, NULL, S3_RELAY, OP_LIST, "lists buckets")
OPERATION(ListDirectoryBuckets, HTTP_GET, S3_SERVICE, "x-id=ListDirectoryBuckets", NULL, S3_RELAY,
          OP_LIST, "lists directory buckets")
OPERATION(ListMultipartUploads, HTTP_GET, S3_BUCKET, "uploads", NULL, S3_RELAY, OP_MULTIPART,
          "lists unfinished uploads of a bucket")
OPERATION(ListObjectAnnotations, HTTP_GET, S3_OBJECT, "annotation", NULL, S3_RELAY, OP_OTHER,
          "lists the annotations of an object")
OPERATION(ListObjectVersions, HTTP_GET, S3_BUCKET, "versions", NULL, S3_RELAY, OP_LIST,
          "lists object versions and delete markers")
OPERATION(ListObjects, HTTP_GET, S3_BUCKET, NULL, NULL, S3_RELAY, OP_LIST,
          "lists objects (version 1)")
OPERATION(ListObjectsV2, HTTP_GET, S3_BUCKET, "list-type=2", NULL, S3_RELAY, OP_LIST,
          "lists objects")
OPERATION(ListParts, HTTP_GET, S3_OBJECT, "uploadId", NULL, S3_RELAY, OP_MULTIPART,
          "lists the parts of an upload")
OPERATION(PutBucketAbac, HTTP_PUT, S3_BUCKET, "abac", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "turns attribute-based access of a bucket on or off")
OPERATION(PutBucketAccelerateConfiguration, HTTP_PUT, S3_BUCKET, "accelerate", NULL, S3_PASS,
          OP_OTHER, "sets the transfer acceleration of a bucket")
OPERATION(PutBucketAcl, HTTP_PUT, S3_BUCKET, "acl", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "sets the ACL of a bucket")
OPERATION(PutBucketAnalyticsConfiguration, HTTP_PUT, S3_BUCKET, "analytics&id", NULL, S3_PASS,
          OP_OTHER, "sets an analytics configuration")
OPERATION(PutBucketCors, HTTP_PUT, S3_BUCKET, "cors", NULL, S3_PASS, OP_OTHER,
          "sets the CORS rules of a bucket")
OPERATION(PutBucketEncryption, HTTP_PUT, S3_BUCKET, "encryption", NULL, S3_PASS, OP_OTHER,
          "sets the default encryption of a bucket")
OPERATION(PutBucketIntelligentTieringConfiguration, HTTP_PUT, S3_BUCKET, "intelligent-tiering&id",
          NULL, S3_PASS, OP_OTHER, "sets an Intelligent-Tiering configuration")
OPERATION(PutBucketInventoryConfiguration, HTTP_PUT, S3_BUCKET, "inventory&id", NULL, S3_PASS,
          OP_OTHER, "sets an inventory configuration")
OPERATION(PutBucketLifecycleConfiguration, HTTP_PUT, S3_BUCKET, "lifecycle", NULL, S3_WRITE_BUCKET,
          OP_OTHER, "sets the lifecycle rules of a bucket")
OPERATION(PutBucketLogging, HTTP_PUT, S3_BUCKET, "logging", NULL, S3_PASS, OP_OTHER,
          "sets the access logging of a bucket")
OPERATION(PutBucketMetricsConfiguration, HTTP_PUT, S3_BUCKET, "metrics&id", NULL, S3_PASS,
          OP_OTHER, "sets a metrics configuration")
OPERATION(PutBucketNotificationConfiguration, HTTP_PUT, S3_BUCKET, "notification", NULL, S3_PASS,
          OP_OTHER, "sets the notifications of a bucket")
OPERATION(PutBucketOwnershipControls, HTTP_PUT, S3_BUCKET, "ownershipControls", NULL,
          S3_WRITE_BUCKET,
          OP_OTHER, "sets the ownership controls of a bucket")
OPERATION(PutBucketPolicy, HTTP_PUT, S3_BUCKET, "policy", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "sets the policy of a bucket")
OPERATION(PutBucketReplication, HTTP_PUT, S3_BUCKET, "replication", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "sets the replication rules of a bucket")
OPERATION(PutBucketRequestPayment, HTTP_PUT, S3_BUCKET, "requestPayment", NULL, S3_WRITE_BUCKET,
          OP_OTHER,
          "sets who pays for requests to a bucket")
OPERATION(PutBucketTagging, HTTP_PUT, S3_BUCKET, "tagging", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "sets the tags of a bucket")
OPERATION(PutBucketVersioning, HTTP_PUT, S3_BUCKET, "versioning", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "sets the versioning state of a bucket")
OPERATION(PutBucketWebsite, HTTP_PUT, S3_BUCKET, "website", NULL, S3_PASS, OP_OTHER,
          "sets the website configuration of a bucket")
OPERATION(PutObject, HTTP_PUT, S3_OBJECT, NULL, NULL, S3_WRITE, OP_PUT, "writes an object")
OPERATION(PutObjectAcl, HTTP_PUT, S3_OBJECT, "acl", NULL, S3_WRITE, OP_OTHER,
          "sets the ACL of an object")
OPERATION(PutObjectAnnotation, HTTP_PUT, S3_OBJECT, "annotation&annotationName", NULL, S3_WRITE,
          OP_OTHER, "sets an annotation of an object")
OPERATION(PutObjectLegalHold, HTTP_PUT, S3_OBJECT, "legal-hold", NULL, S3_WRITE, OP_OTHER,
          "sets the legal hold of an object")
OPERATION(PutObjectLockConfiguration, HTTP_PUT, S3_BUCKET, "object-lock", NULL, S3_WRITE_BUCKET,
          OP_OTHER,
          "sets the object lock of a bucket")
OPERATION(PutObjectRetention, HTTP_PUT, S3_OBJECT, "retention", NULL, S3_WRITE, OP_OTHER,
          "sets the retention of an object")
OPERATION(PutObjectTagging, HTTP_PUT, S3_OBJECT, "tagging", NULL, S3_WRITE, OP_OTHER,
          "sets the tags of an object")
OPERATION(PutPublicAccessBlock, HTTP_PUT, S3_BUCKET, "publicAccessBlock", NULL, S3_WRITE_BUCKET,
          OP_OTHER,
          "sets the public access block of a bucket")
OPERATION(RenameObject, HTTP_PUT, S3_OBJECT, "renameObject", "x-amz-rename-source", S3_WRITE,
          OP_COPY, "renames an object of a directory bucket")
OPERATION(RestoreObject, HTTP_POST, S3_OBJECT, "restore", NULL, S3_WRITE, OP_OTHER,
          "brings an archived object back for some days")
OPERATION(SelectObjectContent, HTTP_POST, S3_OBJECT, "select&select-type=2", NULL, S3_RELAY,
          OP_OTHER, "runs a query over an object")
OPERATION(UpdateBucketMetadataAnnotationTableConfiguration, HTTP_PUT, S3_BUCKET,
          "metadataAnnotationTable", NULL, S3_PASS, OP_OTHER,
          "changes the annotation table of a bucket")
OPERATION(UpdateBucketMetadataInventoryTableConfiguration, HTTP_PUT, S3_BUCKET,
          "metadataInventoryTable", NULL, S3_PASS, OP_OTHER,
          "changes the inventory table of a bucket")
OPERATION(UpdateBucketMetadataJournalTableConfiguration, HTTP_PUT, S3_BUCKET,
          "metadataJournalTable", NULL, S3_PASS, OP_OTHER,
          "changes the journal table of a bucket")
OPERATION(UpdateObjectEncryption, HTTP_PUT, S3_OBJECT, "encryption", NULL, S3_WRITE, OP_OTHER,
          "changes the encryption of an object")
OPERATION(UploadPart, HTTP_PUT, S3_OBJECT, "uploadId&partNumber", NULL, S3_PASS, OP_MULTIPART,
          "writes one part of an upload")
OPERATION(UploadPartCopy, HTTP_PUT, S3_OBJECT, "uploadId&partNumber", "x-amz-copy-source", S3_PASS,
          OP_MULTIPART, "copies a range of an object into a part")
OPERATION(WriteGetObjectResponse, HTTP_POST, S3_SERVICE, "/|/WriteGetObjectResponse",
          "x-amz-request-route,x-amz-request-token", S3_REFUSE, OP_OTHER,
          "answers for an Object Lambda function")
/* Deprecated names: they share method, level and keys with the row of the current name above. */
OPERATION(GetBucketLifecycle, HTTP_GET, S3_BUCKET, "lifecycle", NULL, S3_RELAY, OP_OTHER,
          "is the deprecated name of GetBucketLifecycleConfiguration")
OPERATION(GetBucketNotification, HTTP_GET, S3_BUCKET, "notification", NULL, S3_RELAY,
          OP_OTHER, "is the deprecated name of GetBucketNotificationConfiguration")
OPERATION(PutBucketLifecycle, HTTP_PUT, S3_BUCKET, "lifecycle", NULL, S3_WRITE_BUCKET, OP_OTHER,
          "is the deprecated name of PutBucketLifecycleConfiguration")
OPERATION(PutBucketNotification, HTTP_PUT, S3_BUCKET, "notification", NULL, S3_PASS, OP_OTHER,
          "is the deprecated name of PutBucketNotificationConfiguration")
/* Not in the model of S3, but asked of it. */
OPERATION(PostObject, HTTP_POST, S3_BUCKET, NULL, "content-type=multipart/form-data",
          S3_REFUSE, OP_PUT, "writes an object from a browser's form")
OPERATION(PreflightBucket, HTTP_OPTIONS, S3_BUCKET, NULL, NULL,
          S3_RELAY, OP_OTHER, "asks for the CORS rules of a bucket")
OPERATION(PreflightObject, HTTP_OPTIONS, S3_OBJECT, NULL, NULL,
          S3_RELAY, OP_OTHER, "asks for the CORS rules of an object")
OPERATION(ProbeReady, HTTP_GET, S3_SERVICE, "/-/ready|/minio/health/ready", NULL,
          S3_PROBE, OP_OTHER, "tells whether this server can serve")
OPERATION(ProbeLive, HTTP_GET, S3_SERVICE, "/-/live|/minio/health/live", NULL,
          S3_PROBE, OP_OTHER, "tells whether this server runs")
OPERATION(ProbeReadyHead, HTTP_HEAD, S3_SERVICE, "/-/ready|/minio/health/ready", NULL,
          S3_PROBE, OP_OTHER, "tells whether this server can serve")
OPERATION(ProbeLiveHead, HTTP_HEAD, S3_SERVICE, "/-/live|/minio/health/live", NULL,
          S3_PROBE, OP_OTHER, "tells whether this server runs")
OPERATION(PostPlan, HTTP_POST, S3_SERVICE, "/-/plans", NULL,
          S3_PLAN, OP_OTHER, "takes a plan of what a loader will read")
OPERATION(ListPlans, HTTP_GET, S3_SERVICE, "/-/plans", NULL,
          S3_PLAN, OP_OTHER, "lists the plans of what the key may read")
OPERATION(GetPlan, HTTP_GET, S3_SERVICE, "/-/plans/", NULL,
          S3_PLAN, OP_OTHER, "tells how far a plan was read")
OPERATION(DropPlan, HTTP_DELETE, S3_SERVICE, "/-/plans/", NULL,
          S3_PLAN, OP_OTHER, "drops a plan")
/* Sub-resources that no row knows; never found by a look-up in this table (any method, any
 * level). */
OPERATION(UnknownRead, HTTP_METHOD_COUNT, S3_BUCKET, NULL, NULL,
          S3_RELAY, OP_OTHER, "reads a sub-resource that headpond does not know")
OPERATION(UnknownWrite, HTTP_METHOD_COUNT, S3_BUCKET, NULL, NULL,
          S3_WRITE, OP_OTHER, "changes a sub-resource that headpond does not know")
