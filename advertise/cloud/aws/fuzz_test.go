package aws

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// onlyOnce is a retryer without retries.
type onlyOnce struct{ sdk.NopRetryer }

func (onlyOnce) GetAttemptToken(context.Context) (func(error) error, error) {
	return func(error) error { return nil }, nil
}

// FuzzAnswer checks that any answer of EC2 either results in an error that names the
// request, or in valid addresses and prefixes.
func FuzzAnswer(f *testing.F) {
	s := (&ec2Server{
		routes: map[string]map[string]string{"rtb-1": {"10.0.0.0/16": "local", "fd00::/64": "eni-a"}}, holds: map[string][]string{"eni-a": {"10.0.0.1", "10.0.0.50"}},
		tags: map[string]map[string]string{"rtb-1": {"fairlead/lab/fd00::/64": "eni-a"}, "eni-a": {"fairlead/lab/10.0.0.50": ""}},
	})
	f.Add(200, "<a>"+s.describeTables(nil)+"<nextToken></nextToken></a>")
	f.Add(200, `<a><networkInterfaceSet><item><networkInterfaceId>eni-a</networkInterfaceId><privateIpAddressesSet><item><privateIpAddress>10.0.0.1</privateIpAddress>`+
		`<primary>true</primary></item></privateIpAddressesSet><ipv6AddressesSet><item><ipv6Address>fd00::1</ipv6Address></item></ipv6AddressesSet>`+s.tagSet("eni-a")+`</item></networkInterfaceSet></a>`)
	f.Add(403, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>")
	f.Add(503, "")
	var status int
	var text string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, text)
	}))
	f.Cleanup(h.Close)
	a := &api{
		http: h.Client(), signer: v4.NewSigner(), retryer: onlyOnce{}, region: "eu-west-1", endpoint: h.URL,
		credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		}),
	}
	f.Fuzz(func(t *testing.T, code int, answer string) {
		fuzzlimit.Time(t)
		status, text = 200+max(0, code)%400, answer
		w := work{Provider: &Provider{c: Config{Owner: "lab"}, api: a}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		tables, _, err := a.DescribeRouteTables(ctx, []string{"rtb-1"}, "")
		if err != nil && !strings.Contains(words(err).Error(), "DescribeRouteTables") && !strings.HasPrefix(words(err).Error(), "aws: ") {
			t.Errorf("%v", words(err))
		}
		for _, r := range tables {
			for p := range w.readTable(r).targets {
				if !p.IsValid() {
					t.Errorf("%q has a route of %s", answer, p)
				}
			}
		}
		interfaces, _, _ := a.DescribeNetworkInterfaces(ctx, nil, "")
		for _, i := range interfaces {
			for addr := range w.read(i).holds {
				if !addr.IsValid() {
					t.Errorf("%q has the address %s", answer, addr)
				}
			}
		}
	})
}
