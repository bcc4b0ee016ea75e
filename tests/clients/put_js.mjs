// Uploads by the AWS SDK for JavaScript v3.
//
//   node put_js.mjs URL MANNER BUCKET KEY=FILE...
//
// MANNER: buffer (PutObject of bytes), stream (PutObject of a file stream), upload (lib-storage,
// parts of 5 MiB of a file stream). Nothing is tried twice.
//
// SPDX-License-Identifier: Apache-2.0
import {createReadStream, readFileSync, statSync} from "node:fs";
import {PutObjectCommand, S3Client} from "@aws-sdk/client-s3";
import {Upload} from "@aws-sdk/lib-storage";

const [endpoint, manner, Bucket, ...pairs] = process.argv.slice(2);
const client = new S3Client({endpoint, region: "us-east-1", forcePathStyle: true, maxAttempts: 1});

const manners = {
    buffer: (Key, file) => client.send(new PutObjectCommand({Bucket, Key, Body: readFileSync(file)})),
    stream: (Key, file) => client.send(new PutObjectCommand({
        Bucket, Key, Body: createReadStream(file), ContentLength: statSync(file).size})),
    upload: (Key, file) => new Upload({client, params: {Bucket, Key, Body: createReadStream(file)}}).done(),
};
for (const pair of pairs) {
    const at = pair.indexOf("=");
    await manners[manner](pair.slice(0, at), pair.slice(at + 1));
}
