package modelsource

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azblobblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
)

// s3Storage is Amazon S3 and what speaks as it does: AWS_ENDPOINT_URL says where that
// is. Without any credential it is asked as anybody may ask.
var s3Storage = provider{
	open: func(ctx context.Context, name string, stall time.Duration) (*blob.Bucket, error) {
		settings, err := config.LoadDefaultConfig(ctx, config.WithRetryMaxAttempts(1), config.WithDefaultRegion("us-east-1"))
		if err != nil {
			return nil, err
		}
		if _, err := settings.Credentials.Retrieve(ctx); err != nil {
			settings.Credentials = aws.AnonymousCredentials{}
		}
		return s3blob.OpenBucket(ctx, s3.NewFromConfig(settings, func(o *s3.Options) {
			o.HTTPClient = &http.Client{Transport: &noting{o.HTTPClient.Do, stall}}
			o.DisableLogOutputChecksumValidationSkipped = true // the store hashes everything itself
			o.UsePathStyle = o.BaseEndpoint != nil             // no name server knows the buckets of one's own server
		}), name, nil)
	},
	tag: func(o *blob.ListObject) string {
		var object s3types.Object
		if !o.As(&object) {
			return ""
		}
		return aws.ToString(object.ETag)
	},
	exactly: func(as func(any) bool, tag string) error {
		var in *s3.GetObjectInput
		if as(&in) && tag != "" && tag[0] == '"' {
			in.IfMatch = &tag
		}
		return nil
	},
}

// gcs is Google Cloud Storage, or what STORAGE_EMULATOR_HOST names.
var gcs = provider{
	open: func(ctx context.Context, name string, stall time.Duration) (*blob.Bucket, error) {
		transport := &noting{http.DefaultTransport.(*http.Transport).Clone().RoundTrip, stall}
		calls := gcp.NewAnonymousHTTPClient(transport)
		if credentials, err := gcp.DefaultCredentials(ctx); err == nil {
			if calls, err = gcp.NewHTTPClient(transport, gcp.CredentialsTokenSource(credentials)); err != nil {
				return nil, err
			}
		}
		return gcsblob.OpenBucket(ctx, calls, name, nil)
	},
	tag: func(o *blob.ListObject) string {
		var object storage.ObjectAttrs
		if !o.As(&object) {
			return ""
		}
		return strconv.FormatInt(object.Generation, 10)
	},
	exactly: func(as func(any) bool, tag string) error {
		generation, err := strconv.ParseInt(tag, 10, 64)
		if err != nil {
			return nil
		}
		var object **storage.ObjectHandle
		if as(&object) {
			*object = (*object).Generation(generation)
		}
		return nil
	},
}

// azure is Azure Blob Storage; AZURE_STORAGE_ACCOUNT names the account.
var azure = provider{
	open: func(ctx context.Context, name string, _ time.Duration) (*blob.Bucket, error) {
		service, err := azureblob.NewServiceURL(azureblob.NewDefaultServiceURLOptions())
		if err != nil {
			return nil, fmt.Errorf("%w; AZURE_STORAGE_ACCOUNT names the account", err)
		}
		calls, err := azureblob.NewDefaultClient(service, azureblob.ContainerName(name))
		if err != nil {
			return nil, err
		}
		return azureblob.OpenBucket(ctx, calls, nil)
	},
	tag: func(o *blob.ListObject) string {
		var item container.BlobItem
		if !o.As(&item) || item.Properties == nil || item.Properties.ETag == nil {
			return ""
		}
		return string(*item.Properties.ETag)
	},
	exactly: func(as func(any) bool, tag string) error {
		var options *azblobblob.DownloadStreamOptions
		if as(&options) && tag != "" {
			etag := azcore.ETag(tag)
			options.AccessConditions = &azblobblob.AccessConditions{ModifiedAccessConditions: &azblobblob.ModifiedAccessConditions{IfMatch: &etag}}
		}
		return nil
	},
}
