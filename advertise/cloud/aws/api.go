package aws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/version"
)

// The EC2 Query API: requests are forms, responses are XML (Amazon EC2 API Reference,
// "Query requests").
const apiVersion = "2016-11-15"

// tries is the maximum number of attempts for a request that is throttled or fails. The
// pauses in between grow, and all requests become less frequent.
const tries = 5

// api sends requests to EC2 through the core of the SDK: its credentials, signature and
// retries, without the client for all 700 requests, which takes longer to compile than
// the rest of Fairlead.
type api struct {
	http        sdk.HTTPClient
	credentials sdk.CredentialsProvider
	signer      *v4.Signer
	retryer     sdk.RetryerV2
	region      string
	endpoint    string

	mu sync.Mutex
	// skew is how far the server's clock is ahead of ours, if that is more than a
	// signature tolerates.
	skew time.Duration
}

// connect determines the EC2 endpoint and our credentials.
func connect(ctx context.Context) (*api, error) {
	found, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion(), config.WithRetryer(func() sdk.Retryer { return newRetryer() }))
	if err != nil {
		return nil, fmt.Errorf("aws: %w", err)
	}
	a := &api{http: found.HTTPClient, credentials: found.Credentials, signer: v4.NewSigner(), retryer: newRetryer(), region: found.Region}
	if a.http == nil {
		a.http = awshttp.NewBuildableClient()
	}
	if a.endpoint, err = endpointOf(ctx, found); err != nil {
		return nil, fmt.Errorf("aws: %w", err)
	}
	return a, nil
}

func newRetryer() sdk.RetryerV2 {
	return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) { o.MaxAttempts = tries })
	})
}

// do sends a request, retries if that may help, and decodes the answer into a struct; nil
// for answers that only confirm success.
func (a *api) do(ctx context.Context, action string, form url.Values, into any) error {
	form.Set("Action", action)
	form.Set("Version", apiVersion)
	body := []byte(form.Encode())
	err := a.attempts(ctx, func() error { return a.once(ctx, body, into) })
	if err != nil {
		return &smithy.OperationError{ServiceID: "EC2", OperationName: action, Err: err}
	}
	return nil
}

// attempts calls once until it succeeds, or the SDK's rules stop it.
func (a *api) attempts(ctx context.Context, once func() error) error {
	settle := func(error) error { return nil } // returns the tokens for the last retry
	for n := 1; ; n++ {
		release, err := a.retryer.GetAttemptToken(ctx)
		if err != nil {
			return err
		}
		before := a.offset()
		err = once()
		_, _ = release(err), settle(err) // they never fail
		// A signature that was too old, or in the future, is corrected with the server's
		// clock.
		if err == nil || n >= a.retryer.MaxAttempts() || !a.retryer.IsErrorRetryable(err) && a.offset() == before {
			return err
		}
		paid, refused := a.retryer.GetRetryToken(ctx, err)
		if refused != nil {
			return err // the retry tokens are used up
		}
		settle = paid
		delay, unknown := a.retryer.RetryDelay(n, err)
		if unknown != nil {
			return err
		}
		if !sleep.For(ctx, delay) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// once sends one signed request.
func (a *api) once(ctx context.Context, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("User-Agent", "fairlead/"+version.String())
	if a.credentials == nil {
		return errors.New("no credentials configured")
	}
	who, err := a.credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := a.signer.SignHTTP(ctx, who, r, hex.EncodeToString(sum[:]), "ec2", a.region, time.Now().Add(a.offset())); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return &smithyhttp.RequestSendError{Err: err}
	}
	defer answer.Body.Close()
	a.compareClocks(answer.Header.Get("Date"))
	text, err := limit.ReadAll(answer.Body, "the answer of EC2", limit.Text)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return refusal(answer, text)
	}
	if into == nil {
		return nil
	}
	if err := xml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	return nil
}

// refusal returns the error that an answer contains.
func refusal(answer *http.Response, text []byte) error {
	var response struct {
		Errors []struct{ Code, Message string } `xml:"Errors>Error"`
	}
	_ = xml.Unmarshal(text, &response) // an answer that is not XML has no code
	result := &smithy.GenericAPIError{Code: http.StatusText(answer.StatusCode), Message: answer.Status}
	if len(response.Errors) > 0 {
		result.Code = cmp.Or(response.Errors[0].Code, result.Code)
		result.Message = response.Errors[0].Message
	}
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: answer}, Err: result}
}

// maxSkew is how far clocks may differ: a signature is valid for five minutes.
const maxSkew = 4 * time.Minute

// compareClocks records how far the server's clock is ahead of ours.
func (a *api) compareClocks(date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if skew := time.Until(at); (skew - a.skew).Abs() > maxSkew {
		a.skew = skew
	}
}

func (a *api) offset() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skew
}

// pages calls get without a token, and then with the token of each following page.
func pages(get func(token string) (next string, err error)) error {
	for token := ""; ; {
		next, err := get(token)
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}
