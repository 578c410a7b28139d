package manifest

import (
	"strings"
	"testing"
	"unicode/utf16"
)

// unusual is a Service with an EndpointSlice that the cases below modify.
const unusual = `apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    fairlead.io/addresses: 10.1.1.1
spec:
  type: LoadBalancer
  ports:
    - name: http
      port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
  - name: http
    port: 8080
endpoints:
  - addresses: [172.16.1.2]
  - addresses: [172.16.1.3]
`

// objectJSON is the same Service in JSON.
const objectJSON = `{"apiVersion": "v1", "kind": "Service",
 "metadata": {"name": "web", "annotations": {"fairlead.io/addresses": "10.1.1.1"}},
 "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]}}
`

// served is the result of unusual in a file f.yaml if nothing is wrong.
const served = `default/web tunnel/maglev/16381 tcp (f.yaml:1)
  TCP 10.1.1.1:80 "http"
    172.16.1.2:8080 weight 1
    172.16.1.3:8080 weight 1
`

// alone is the same without the slice.
const alone = `default/web tunnel/maglev/16381 tcp (f.yaml:1)
  TCP 10.1.1.1:80 "http"
`

// utf16Text encodes a text as Windows editors may save it.
func utf16Text(text string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// TestUnusual has texts with typical mistakes of people and programs, and the problem
// reported for each.
func TestUnusual(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(unusual, old) {
			t.Fatalf("%q is not in the text", old)
		}
		return strings.Replace(unusual, old, new, 1)
	}
	list := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: web, annotations: {fairlead.io/addresses: 10.1.1.1}}\n" +
		"  spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}\n"
	for name, c := range map[string]struct{ file, text, want string }{
		// Encodings.
		"byte order mark":         {"f.yaml", "\ufeff" + unusual, served},
		"byte order mark in JSON": {"f.json", "\ufeff" + objectJSON, strings.Replace(alone, "f.yaml", "f.json", 1)},
		"CRLF":                    {"f.yaml", strings.ReplaceAll(unusual, "\n", "\r\n"), served},
		"CR":                      {"f.yaml", strings.ReplaceAll(unusual, "\n", "\r"), served},
		"UTF-16":                  {"f.yaml", utf16Text(unusual), served},
		"Latin-1":                 {"f.yaml", change("name: web\n", "name: web # Gr\xfc\xdfe\n"), "! f.yaml:4: byte 0xfc is not UTF-8; save the file as UTF-8\n"},
		"a NUL at the end":        {"f.yaml", unusual + "\x00", "! f.yaml:26: contains the control character U+0000\n"},
		"upper-case extension":    {"F.YAML", unusual, strings.Replace(served, "f.yaml", "F.YAML", 1)},

		// Characters that look like others.
		"no-break space": {"f.yaml", change("  name: web\n", "\u00a0 name: web\n"),
			"! f.yaml:5: not valid YAML: mapping values are not allowed in this context; line 4 contains U+00A0, which only looks like a character of YAML\n"},
		"en dash": {"f.yaml", change("    - name: http", "    – name: http"),
			"! f.yaml:11: not valid YAML: mapping values are not allowed in this context; line 10 contains U+2013, which only looks like a character of YAML\n"},
		"tab": {"f.yaml", change("    - name: http", "\t- name: http"),
			"! f.yaml:10: not valid YAML: found character that cannot start any token; line 10 is indented with a tab, and YAML wants spaces\n"},
		"typographic quotes": {"f.yaml", change("10.1.1.1", "“10.1.1.1”"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"“10.1.1.1”\" is not an IP address; it contains U+201C, which no address has\n"},
		"fullwidth digit": {"f.yaml", change("10.1.1.1", "10.1.1.１"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"10.1.1.１\" is not an IP address; it contains U+FF11, which no address has\n"},
		"zero-width space": {"f.yaml", change("10.1.1.1", "10.1.1.1\u200b"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"10.1.1.1\\u200b\" is not an IP address; it contains U+200B, which no address has\n"},
		"Cyrillic letter": {"f.yaml", change("kind: Service", "kind: \u0405ervice"),
			"! f.yaml:2: \u0405ervice default/web: kind: kind \u0405ervice is not read here; did you mean \"Service\"?\n"},

		// Leftovers of other programs.
		"template of Helm": {"f.yaml", change("10.1.1.1", "{{ .Values.vip }}"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: want text, got {{ ... }}, as of a template that was not rendered\n"},
		"template of Jinja": {"f.yaml", change("spec:\n", "{% if x %}\nspec:\n"),
			"! f.yaml:7: not valid YAML: found character that cannot start any token; line 7 looks like a template that was not rendered\n"},
		"variable": {"f.yaml", change("10.1.1.1", "${VIP}"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"${VIP}\" is not an IP address; it looks like a variable that was not replaced\n"},
		"merge conflict": {"f.yaml", change("    fairlead.io/addresses: 10.1.1.1\n", "<<<<<<< HEAD\n    fairlead.io/addresses: 10.1.1.1\n=======\n    fairlead.io/addresses: 10.1.1.2\n>>>>>>> b\n"),
			"! f.yaml:7: not valid YAML: could not find expected ':'; line 6 is of a merge conflict that is not resolved\n"},
		"page of a web server": {"f.yaml", "<!DOCTYPE html><html><body>404 Not Found</body></html>\n",
			"! f.yaml:1: want an object with apiVersion and kind, got the text \"<!DOCTYPE html><html><body>404 Not Found...\"\n"},

		// JSON.
		"comma at the end": {"f.json", strings.Replace(objectJSON, "80}", "80,}", 1),
			"! f.json:3: not valid JSON: invalid character '}' looking for beginning of object key string; the comma before it is one too many\n"},
		"comma at the end of a list": {"f.json", strings.Replace(objectJSON, "80}", "80},", 1),
			"! f.json:3: not valid JSON: invalid character ']' looking for beginning of value; the comma before it is one too many\n"},
		"comment": {"f.json", "// web\n" + objectJSON, "! f.json:1: not valid JSON: invalid character '/' looking for beginning of value; JSON has no comments\n"},
		"single quotes": {"f.json", strings.ReplaceAll(objectJSON, `"`, `'`),
			"! f.json:1: not valid JSON: invalid character '\\''; JSON has texts in double quotes (\")\n"},
		"YAML": {"f.json", unusual, "! f.json:1: not valid JSON: invalid character 'a' looking for beginning of value; where it is YAML, let its name end in .yaml\n"},
		"an array": {"f.json", "[" + objectJSON + "]",
			"! f.json:1: want an object with apiVersion and kind, got a list; write several objects as documents of their own, or as the items of a List\n"},
		"two objects": {"f.json", objectJSON + strings.NewReplacer(`"web"`, `"b"`, "10.1.1.1", "10.1.1.2").Replace(objectJSON),
			"default/b tunnel/maglev/16381 tcp (f.json:4)\n  TCP 10.1.1.2:80 \"http\"\n" + strings.Replace(alone, "f.yaml", "f.json", 1)},
		"JSON as YAML":   {"f.yaml", objectJSON, alone},
		"a whole number": {"f.json", strings.Replace(objectJSON, "80}", "80.0}", 1), "! f.json:3: Service default/web: spec.ports[0].port: want a whole number, got the number 80.0\n"},

		// Numbers.
		"octal": {"f.yaml", change("port: 80\n", "port: 0120\n"), "! f.yaml:11: Service default/web: spec.ports[0].port: 0120 is octal, and means 80; write 80 or 120\n"},
		"huge": {"f.yaml", change("port: 80\n", "port: 99999999999999999999\n"),
			"! f.yaml:11: Service default/web: spec.ports[0].port: 99999999999999999999 is out of range\n"},
		"base 60": {"f.yaml", change("port: 80\n", "port: 1:20\n"), "! f.yaml:11: Service default/web: spec.ports[0].port: want a whole number, got the text \"1:20\"\n"},

		// Documents and lists.
		"empty documents": {"f.yaml", "---\n---\n" + unusual + "---\n...\n", strings.Replace(served, ":1)", ":3)", 1)},
		"only comments":   {"f.yaml", "# nothing here\n---\n", ""},
		"strange items": {"f.yaml", list + "- null\n- {}\n- text\n", strings.Replace(alone, ":1)", ":4)", 1) + "! f.yaml:8: want an object with apiVersion and kind, got nothing\n" +
			"! f.yaml:9: kind: is missing; want Service, EndpointSlice, Pod, BGPPeer, Advertisement, AddressPool, Quarantine, Secret, List\n! f.yaml:10: want an object with apiVersion and kind, got the text \"text\"\n"},
		"Endpoints": {"f.yaml", strings.SplitAfter(unusual, "---\n")[0] + "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web}\nsubsets: []\n",
			alone + "! f.yaml:14: Endpoints default/web: kind: kind Endpoints is not read here; want EndpointSlices (discovery.k8s.io/v1)\n"},
		"a network": {"f.yaml", "apiVersion: fairlead.io/v1alpha1\nkind: VirtualNetwork\nmetadata: {name: a}\n",
			"! f.yaml:2: VirtualNetwork a: kind: kind VirtualNetwork is not read here; networks are for fairlead vdn apply\n"},
		"name": {"f.yaml", change("name: web\n", "name: Web\n"),
			"! f.yaml:4: Service default/Web: metadata.name: \"Web\" is not a valid name: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character\n"},
		"empty class": {"f.yaml", change("type: LoadBalancer\n", "type: LoadBalancer\n  loadBalancerClass: \"\"\n"),
			"! f.yaml:9: Service default/web: spec.loadBalancerClass: is empty; leave it out, or want \"fairlead.io/fairlead\"\n"},

		// EndpointSlices.
		"label misspelt": {"f.yaml", change("kubernetes.io/service-name", "kubernetes.io/servicename"),
			alone + "! f.yaml:17: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: is missing, and is not spelt \"kubernetes.io/servicename\"; it names the Service that the endpoints belong to\n"},
		"label with a namespace": {"f.yaml", change("service-name: web", "service-name: default/web"),
			alone + "! f.yaml:18: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: \"default/web\" is no name of a Service; want \"web\", of a Service in the namespace of the EndpointSlice\n"},
		"label with another case": {"f.yaml", change("service-name: web", "service-name: Web"),
			alone + "! f.yaml:13: EndpointSlice default/web-1: belongs to Service default/Web, which is not in this folder; it serves nothing until that is there; did you mean \"web\"?\n"},
		"Service in another namespace": {"f.yaml", change("name: web\n", "name: web\n  namespace: prod\n"),
			strings.NewReplacer("default/web", "prod/web").Replace(alone) + "! f.yaml:14: EndpointSlice default/web-1: metadata.namespace: belongs to Service default/web, which is not in this folder; " +
				"an EndpointSlice is of a Service in its own namespace: to serve Service prod/web (f.yaml:1), move it to namespace prod\n"},
		"no address type": {"f.yaml", change("addressType: IPv4\n", ""), alone + "! f.yaml:13: EndpointSlice default/web-1: addressType: is missing; want IPv4 or IPv6\n"},
		"families mixed": {"f.yaml", change("[172.16.1.3]", "[\"2001:db8::3\"]"),
			alone + "! f.yaml:25: EndpointSlice default/web-1: endpoints[1].addresses[0]: 2001:db8::3 is not of addressType IPv4\n"},
		"two servers in one endpoint": {"f.yaml", change("[172.16.1.2]", "[172.16.1.2, 172.16.1.9]"),
			served + "! f.yaml:24: EndpointSlice default/web-1: endpoints[0].addresses: has 2 addresses, of which only the first, 172.16.1.2, is used; make each server an endpoint of its own\n"},
		"a server twice": {"f.yaml", change("172.16.1.3", "172.16.1.2"),
			alone + "    172.16.1.2:8080 weight 1\n! f.yaml:25: EndpointSlice default/web-1: endpoints[1].addresses[0]: 172.16.1.2 is given twice, first in endpoints[0]; it counts once\n"},
		"a name": {"f.yaml", change("172.16.1.2", "web1.example.org"),
			alone + "! f.yaml:24: EndpointSlice default/web-1: endpoints[0].addresses[0]: \"web1.example.org\" is not an IP address; names are not looked up\n"},
		"with a port": {"f.yaml", change("[172.16.1.2]", "[\"172.16.1.2:8080\"]"),
			alone + "! f.yaml:24: EndpointSlice default/web-1: endpoints[0].addresses[0]: \"172.16.1.2:8080\" is not an IP address; did you mean 172.16.1.2, without the port?\n"},
		"port without a name": {"f.yaml", change("  - name: http\n    port: 8080\n", "  - port: 8080\n"),
			alone + "! f.yaml:10: Service default/web: spec.ports[0].name: no EndpointSlice of the Service has the port TCP \"http\"; they have TCP without a name\n"},

		// Annotations and ranges.
		"spaces in weights": {"f.yaml", change("10.1.1.1", "10.1.1.1\n    fairlead.io/weights: 172.16.1.2 = 3"), strings.Replace(served, "weight 1", "weight 3", 1)},
		"a prefix as an address": {"f.yaml", change("10.1.1.1", "10.1.1.0/24"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"10.1.1.0/24\" is not an IP address; it is a prefix, and addresses are wanted one by one\n"},
		"a range of addresses": {"f.yaml", change("10.1.1.1", "10.1.1.1-10.1.1.5"),
			"! f.yaml:6: Service default/web: metadata.annotations[fairlead.io/addresses]: \"10.1.1.1-10.1.1.5\" is not an IP address; it is a range, and addresses are wanted one by one\n"},
		"an address as a prefix": {"f.yaml", change("type: LoadBalancer\n", "type: LoadBalancer\n  loadBalancerSourceRanges: [10.0.0.1]\n"),
			"! f.yaml:9: Service default/web: spec.loadBalancerSourceRanges[0]: \"10.0.0.1\" is not a prefix: the length is missing; use 10.0.0.1/32 for the single address\n"},
		"off without quotes": {"f.yaml", change("10.1.1.1", "10.1.1.1\n    fairlead.io/panic-mode: off"),
			"! f.yaml:7: Service default/web: metadata.annotations[fairlead.io/panic-mode]: is a boolean to Kubernetes; write \"off\" in quotes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLooker(t)
			l.write("good.yaml", strings.NewReplacer("web", "good", "10.1.1.1", "10.1.9.9").Replace(unusual))
			good := show(l.rest())
			l.write(c.file, c.text)
			got := strings.Replace(show(l.rest()), good, "", 1)
			if got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			if !strings.Contains(show(l.rest()), good) {
				t.Error("another Service of the folder is not served as before")
			}
		})
	}
}
