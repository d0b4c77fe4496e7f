package modelsource

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azblobblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// providers are those of object storage, by their schemes. Each library is told not to
// retry: modelfetch retries itself, waits as long as the source asks, and reports that.
var providers = map[string]provider{"azblob": azure, "gs": gcs, "s3": s3Storage}

// s3Storage is Amazon S3, or a compatible server at AWS_ENDPOINT_URL. Without a credential,
// requests are anonymous.
var s3Storage = provider{
	remedy: "a credential is taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from ~/.aws, where AWS_PROFILE names the profile",
	open: func(ctx context.Context, name string, via *noting, given fetchapi.Credentials) (*blob.Bucket, error) {
		reach := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = via.stall })
		options := append(awsOf(given), config.WithHTTPClient(reach), config.WithRetryMaxAttempts(1), config.WithDefaultRegion("us-east-1"))
		settings, err := config.LoadDefaultConfig(ctx, options...)
		if err != nil {
			return nil, err
		}
		for _, endpoint := range []string{os.Getenv("AWS_ENDPOINT_URL_S3"), aws.ToString(settings.BaseEndpoint)} {
			if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
				return nil, invalid("AWS_ENDPOINT_URL is %q, which is not the address of a server; write it as https://host:9000", endpoint)
			}
		}
		if _, err := settings.Credentials.Retrieve(ctx); err != nil {
			// If nothing names a credential, the library looks for the machine's own.
			if !aws.IsCredentialsProvider(settings.Credentials, (*ec2rolecreds.Provider)(nil)) {
				return nil, reasonf(fetchapi.ReasonAccessDenied, "cannot get the credential that the AWS_… variables or ~/.aws name: %v", innermost(err))
			}
			settings.Credentials = aws.AnonymousCredentials{}
		}
		return s3blob.OpenBucket(ctx, s3.NewFromConfig(settings, func(o *s3.Options) {
			if built, ok := settings.HTTPClient.(*awshttp.BuildableClient); ok { // with the certificates of AWS_CA_BUNDLE
				reach = built
			}
			transport := reach.GetTransport()
			transport.ResponseHeaderTimeout = 0 // noting has a time limit of its own, with a better error
			o.HTTPClient = &noting{(&http.Client{Transport: transport, CheckRedirect: redirected}).Do, via.stall}
			o.DisableLogOutputChecksumValidationSkipped = true // the store hashes everything itself
			o.UsePathStyle = o.BaseEndpoint != nil             // DNS does not know the buckets of a private server
		}), name, nil)
	},
	tag: func(o *blob.ListObject) string {
		var object s3types.Object
		if !o.As(&object) {
			return ""
		}
		return aws.ToString(object.ETag)
	},
	header: "ETag",
	exactly: func(as func(any) bool, tag string) {
		var in *s3.GetObjectInput
		if as(&in) {
			in.IfMatch = &tag
		}
	},
}

// awsOf makes the library use the given credentials, and no file of the user.
func awsOf(given fetchapi.Credentials) []func(*config.LoadOptions) error {
	if given == nil {
		return nil
	}
	_ = os.Unsetenv("AWS_PROFILE") // a profile would have to be in a file; this process does one fetch only
	return []func(*config.LoadOptions) error{
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}), config.WithRegion(given["AWS_REGION"]),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], given["AWS_SESSION_TOKEN"])),
	}
}

// gcs is Google Cloud Storage, or what STORAGE_EMULATOR_HOST names. Without any
// credential it is asked as anybody may ask.
var gcs = provider{
	remedy: "a credential is taken from the file that GOOGLE_APPLICATION_CREDENTIALS names, or from `gcloud auth application-default login`",
	open: func(ctx context.Context, name string, via *noting, given fetchapi.Credentials) (*blob.Bucket, error) {
		calls, err := gcsCalls(ctx, via, given)
		if err != nil {
			return nil, err
		}
		client, err := storage.NewClient(ctx, option.WithHTTPClient(calls))
		if err != nil {
			return nil, err
		}
		client.SetRetry(storage.WithPolicy(storage.RetryNever))
		return gcsblob.OpenBucket(ctx, nil, name, &gcsblob.Options{Client: client})
	},
	tag: func(o *blob.ListObject) string {
		var object storage.ObjectAttrs
		if !o.As(&object) {
			return ""
		}
		if object.Generation == 0 {
			return ""
		}
		return strconv.FormatInt(object.Generation, 10)
	},
	header: "X-Goog-Generation",
	exactly: func(as func(any) bool, tag string) {
		var object **storage.ObjectHandle
		if !as(&object) {
			return
		}
		*object = (*object).ReadCompressed(true) // as it was listed
		if generation, err := strconv.ParseInt(tag, 10, 64); err == nil {
			*object = (*object).Generation(generation)
		}
	},
}

// gcsCalls returns a client with the credential, if there is one.
func gcsCalls(ctx context.Context, via *noting, given fetchapi.Credentials) (*http.Client, error) {
	anonymous := &gcp.NewAnonymousHTTPClient(via).Client
	anonymous.CheckRedirect = redirected
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" { // an emulator gets no credential
		return anonymous, nil
	}
	credentials, err := googleCredentials(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Timeout: via.stall}), given)
	if err != nil {
		return nil, err
	}
	if credentials == nil {
		return anonymous, nil
	}
	identified, err := gcp.NewHTTPClient(via, gcp.CredentialsTokenSource(credentials))
	if err != nil {
		return nil, err
	}
	// The client puts the credential into each request, so it must follow no redirect.
	identified.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &identified.Client, nil
}

// googleCredentials returns the given credentials, or those of this machine; nil: it has
// none.
func googleCredentials(ctx context.Context, given fetchapi.Credentials) (*google.Credentials, error) {
	const scope = "https://www.googleapis.com/auth/devstorage.read_only"
	if given != nil {
		text := []byte(given["GOOGLE_APPLICATION_CREDENTIALS_JSON"])
		// A key of another type could name servers or programs for the library to ask.
		for _, kind := range []google.CredentialsType{google.ServiceAccount, google.AuthorizedUser} {
			if credentials, err := google.CredentialsFromJSONWithType(ctx, text, kind, scope); err == nil {
				return credentials, nil
			}
		}
		return nil, reasonf(fetchapi.ReasonAccessDenied, "GOOGLE_APPLICATION_CREDENTIALS_JSON is not the JSON of a key of the type service_account or authorized_user")
	}
	credentials, err := gcp.DefaultCredentials(ctx)
	if err != nil && os.Getenv("GOOGLE_APPLICATION_CREDENTIALS") != "" {
		return nil, reasonf(fetchapi.ReasonAccessDenied, "cannot read the credential file of GOOGLE_APPLICATION_CREDENTIALS: %v", err)
	}
	return credentials, nil
}

// azure is Azure Blob Storage. Without a credential, requests are anonymous.
var azure = provider{
	remedy: "AZURE_STORAGE_ACCOUNT names the account, and a credential is taken from AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING or `az login`",
	open: func(ctx context.Context, name string, via *noting, given fetchapi.Credentials) (*blob.Bucket, error) {
		where := azureblob.NewDefaultServiceURLOptions()
		if given != nil {
			where.AccountName, where.SASToken = cmp.Or(given["AZURE_STORAGE_ACCOUNT"], where.AccountName), given["AZURE_STORAGE_SAS_TOKEN"]
		}
		service, err := azureblob.NewServiceURL(where)
		if err != nil {
			return nil, err
		}
		address, err := url.JoinPath(string(service), name)
		if err != nil {
			return nil, errors.New("cannot read the address of the service") // the error may have a credential in it
		}
		options := container.ClientOptions{ClientOptions: policy.ClientOptions{Transport: via, Retry: policy.RetryOptions{MaxRetries: -1}}}
		var calls *container.Client
		if given != nil {
			calls, err = azureGiven(via.stall, address, where, given, options)
		} else {
			calls, err = azureClient(ctx, via.stall, address, name, where, options)
		}
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
		return quoted(string(*item.Properties.ETag))
	},
	header: "ETag",
	exactly: func(as func(any) bool, tag string) {
		var options *azblobblob.DownloadStreamOptions
		if as(&options) {
			etag := azcore.ETag(tag)
			options.AccessConditions = &azblobblob.AccessConditions{ModifiedAccessConditions: &azblobblob.ModifiedAccessConditions{IfMatch: &etag}}
		}
	},
}

// quoted adds the quotes that If-Match needs; Azure lists ETags without quotes.
func quoted(tag string) string {
	if strings.HasPrefix(tag, `"`) {
		return tag
	}
	return `"` + tag + `"`
}

// azureClient returns a client with the credential of the environment. It reads the
// variables that gocloud.dev/blob/azureblob documents. The client of that package cannot
// be given a transport.
func azureClient(ctx context.Context, patience time.Duration, address, name string, where *azureblob.ServiceURLOptions, o container.ClientOptions) (*container.Client, error) {
	if key := os.Getenv("AZURE_STORAGE_KEY"); key != "" {
		return azureByKey(address, where.AccountName, key, o)
	}
	if where.SASToken != "" { // it is in the address
		return container.NewClientWithNoCredential(address, &o)
	}
	if connection := cmp.Or(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), os.Getenv("AZURE_STORAGEBLOB_CONNECTIONSTRING")); connection != "" {
		client, err := container.NewClientFromConnectionString(connection, name, &o)
		if err != nil {
			return nil, errors.New("cannot read AZURE_STORAGE_CONNECTION_STRING") // it is a credential
		}
		return client, nil
	}
	identity, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: &http.Client{Timeout: patience}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}}); err != nil {
		if refused, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
			return nil, reasonf(fetchapi.ReasonAccessDenied, "cannot get the credential that the AZURE_… variables name: %v", refused)
		}
		return container.NewClientWithNoCredential(address, &o)
	}
	return container.NewClient(address, identity, &o)
}

// azureGiven returns a client with the given credentials, and none of this machine's.
func azureGiven(patience time.Duration, address string, where *azureblob.ServiceURLOptions, given fetchapi.Credentials, o container.ClientOptions) (*container.Client, error) {
	if key := given["AZURE_STORAGE_KEY"]; key != "" {
		return azureByKey(address, where.AccountName, key, o)
	}
	if where.SASToken != "" { // it is in the address
		return container.NewClientWithNoCredential(address, &o)
	}
	identity, err := azidentity.NewClientSecretCredential(given["AZURE_TENANT_ID"], given["AZURE_CLIENT_ID"], given["AZURE_CLIENT_SECRET"], &azidentity.ClientSecretCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: &http.Client{Timeout: patience}},
	})
	if err != nil {
		return nil, errors.New("AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET are not valid for an application")
	}
	return container.NewClient(address, identity, &o)
}

func azureByKey(address, account, key string, o container.ClientOptions) (*container.Client, error) {
	shared, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		return nil, errors.New("AZURE_STORAGE_KEY is not an account key in base64")
	}
	return container.NewClientWithSharedKeyCredential(address, shared, &o)
}
