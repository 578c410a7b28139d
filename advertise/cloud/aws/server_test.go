package aws

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ec2Server implements the parts of EC2 that the tests use.
type ec2Server struct {
	t  *testing.T
	mu sync.Mutex
	// routes maps tables to their routes: by destination, "eni-..." or another target.
	routes map[string]map[string]string
	// holds contains the interfaces' addresses, the primary one first.
	holds map[string][]string
	check map[string]bool
	tags  map[string]map[string]string
	// elastic contains allocations and their associations, "eni-... address".
	elastic map[string]string
	// fail contains the errors to return for actions, and how often.
	fail map[string]*failure
	// wrote lists the requests that change something.
	wrote []string
	asked map[string]int
}

type failure struct {
	code   string
	status int
	times  int
}

func newServer(t *testing.T) *ec2Server {
	s := &ec2Server{
		t: t, routes: map[string]map[string]string{"rtb-1": {"10.0.0.0/16": "local"}},
		holds: map[string][]string{"eni-a": {"10.0.0.1"}, "eni-b": {"10.0.0.2"}, "eni-x": {"10.0.0.9"}}, check: map[string]bool{"eni-a": true},
		tags: map[string]map[string]string{}, elastic: map[string]string{}, fail: map[string]*failure{}, asked: map[string]int{},
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": h.URL, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		t.Setenv(k, v)
	}
	return s
}

// change lets a test read and modify the state.
func (s *ec2Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// wants checks which requests have been made since the last call.
func (s *ec2Server) wants(want ...string) {
	s.t.Helper()
	s.change(func() {
		if d := cmp.Diff(want, s.wrote); d != "" {
			s.t.Errorf("written, -want +got:\n%s", d)
		}
		s.wrote = nil
	})
}

func (s *ec2Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") {
		s.t.Errorf("not signed: %v", r.Header)
	}
	if err := r.ParseForm(); err != nil {
		s.t.Error(err)
	}
	f := r.Form
	action := f.Get("Action")
	s.asked[action]++
	if x := s.fail[action]; x != nil && x.times > 0 {
		x.times--
		s.refuse(w, x.code, x.status)
		return
	}
	if next := f.Get("NextToken"); strings.HasPrefix(action, "Describe") {
		if next == "" && action != "DescribeAddresses" { // an empty page first
			s.answer(w, action, "<nextToken>more</nextToken>")
			return
		}
		s.answer(w, action, map[string]func(url.Values) string{
			"DescribeRouteTables": s.describeTables, "DescribeNetworkInterfaces": s.describeInterfaces, "DescribeAddresses": s.describeAddresses,
		}[action](f))
		return
	}
	if code := s.write(action, f); code != "" {
		s.refuse(w, code, http.StatusBadRequest)
		return
	}
	s.answer(w, action, "<return>true</return>")
}

func (s *ec2Server) answer(w http.ResponseWriter, action, body string) {
	_, _ = fmt.Fprintf(w, `<%sResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>%s</%sResponse>`, action, body, action)
}

func (s *ec2Server) refuse(w http.ResponseWriter, code string, status int) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<Response><Errors><Error><Code>%s</Code><Message>said the server</Message></Error></Errors><RequestID>1</RequestID></Response>`, code)
}

// write executes a request that changes something, and returns an error code.
func (s *ec2Server) write(action string, f url.Values) string {
	s.note(action, f)
	destination := f.Get("DestinationCidrBlock") + f.Get("DestinationIpv6CidrBlock")
	table, to, addr := s.routes[f.Get("RouteTableId")], f.Get("NetworkInterfaceId"), f.Get("PrivateIpAddress.1")
	switch action {
	case "CreateRoute":
		if table[destination] != "" {
			return "RouteAlreadyExists"
		}
		table[destination] = to
	case "ReplaceRoute":
		table[destination] = to
	case "DeleteRoute":
		if table[destination] == "" {
			return "InvalidRoute.NotFound"
		}
		delete(table, destination)
	case "CreateTags":
		id := f.Get("ResourceId.1")
		if s.tags[id] == nil {
			s.tags[id] = map[string]string{}
		}
		s.tags[id][f.Get("Tag.1.Key")] = f.Get("Tag.1.Value")
	case "DeleteTags":
		delete(s.tags[f.Get("ResourceId.1")], f.Get("Tag.1.Key"))
	case "ModifyNetworkInterfaceAttribute":
		s.check[to] = f.Get("SourceDestCheck.Value") == "true"
	case "AssignPrivateIpAddresses":
		return s.assign(to, addr, f.Get("AllowReassignment") == "true")
	case "UnassignPrivateIpAddresses":
		s.holds[to] = slices.DeleteFunc(s.holds[to], func(a string) bool { return a == addr })
	case "AssociateAddress":
		s.elastic[f.Get("AllocationId")] = to + " " + f.Get("PrivateIpAddress")
	default:
		s.t.Errorf("asked for %s", action)
	}
	return ""
}

func (s *ec2Server) assign(to, addr string, move bool) string {
	for id, has := range s.holds {
		if i := slices.Index(has, addr); i == 0 || i > 0 && !move {
			return "InvalidParameterValue"
		} else if i > 0 {
			s.holds[id] = slices.Delete(has, i, i+1)
		}
	}
	s.holds[to] = append(s.holds[to], addr)
	return ""
}

func (s *ec2Server) note(action string, f url.Values) {
	words := []string{action}
	for _, k := range slices.Sorted(maps.Keys(f)) {
		if k != "Action" && k != "Version" {
			words = append(words, k+"="+f.Get(k))
		}
	}
	s.wrote = append(s.wrote, strings.Join(words, " "))
}

func (s *ec2Server) tagSet(id string) string {
	text := "<tagSet>"
	for k, v := range s.tags[id] {
		text += fmt.Sprintf("<item><key>%s</key><value>%s</value></item>", k, v)
	}
	return text + "</tagSet>"
}

func (s *ec2Server) describeTables(url.Values) string {
	text := "<routeTableSet>"
	for _, id := range slices.Sorted(maps.Keys(s.routes)) {
		text += "<item><routeTableId>" + id + "</routeTableId><vpcId>vpc-1</vpcId>" + s.tagSet(id) + "<routeSet>"
		for p, to := range s.routes[id] {
			target := "gatewayId"
			if strings.HasPrefix(to, "eni-") {
				target = "networkInterfaceId"
			}
			family := "destinationCidrBlock"
			if strings.Contains(p, ":") {
				family = "destinationIpv6CidrBlock"
			}
			text += fmt.Sprintf("<item><%s>%s</%s><%s>%s</%s><state>active</state></item>", family, p, family, target, to, target)
		}
		text += "</routeSet></item>"
	}
	return text + "</routeTableSet>"
}

func (s *ec2Server) describeInterfaces(f url.Values) string {
	name, values := f.Get("Filter.1.Name"), []string{}
	for i := 1; f.Get(fmt.Sprint("Filter.1.Value.", i)) != ""; i++ {
		values = append(values, f.Get(fmt.Sprint("Filter.1.Value.", i)))
	}
	if f.Get("Filter.2.Name") != "vpc-id" || f.Get("Filter.2.Value.1") != "vpc-1" {
		s.t.Errorf("not of one VPC: %v", f)
	}
	text := "<networkInterfaceSet>"
	for _, id := range slices.Sorted(maps.Keys(s.holds)) {
		matches := slices.ContainsFunc(s.holds[id], func(a string) bool { return slices.Contains(values, a) })
		if name == "tag-key" {
			matches = slices.ContainsFunc(slices.Collect(maps.Keys(s.tags[id])), func(k string) bool {
				return strings.HasPrefix(k, strings.TrimSuffix(values[0], "*"))
			})
		}
		if !matches {
			continue
		}
		text += fmt.Sprintf("<item><networkInterfaceId>%s</networkInterfaceId><sourceDestCheck>%t</sourceDestCheck><privateIpAddressesSet>", id, s.check[id])
		for i, a := range s.holds[id] {
			text += fmt.Sprintf("<item><privateIpAddress>%s</privateIpAddress><primary>%t</primary></item>", a, i == 0)
		}
		text += "</privateIpAddressesSet>" + s.tagSet(id) + "</item>"
	}
	return text + "</networkInterfaceSet>"
}

func (s *ec2Server) describeAddresses(f url.Values) string {
	text := "<addressesSet>"
	for id, to := range s.elastic {
		eni, addr, _ := strings.Cut(to, " ")
		if _, ok := s.tags[id][f.Get("Filter.1.Value.1")]; !ok {
			continue
		}
		text += fmt.Sprintf("<item><allocationId>%s</allocationId><networkInterfaceId>%s</networkInterfaceId><privateIpAddress>%s</privateIpAddress>%s</item>", id, eni, addr, s.tagSet(id))
	}
	return text + "</addressesSet>"
}
