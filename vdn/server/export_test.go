package server

// Rows returns the routes of the API, as "GET /v1/networks", and the others.
func Rows(s *Server) []string {
	rows := []string{"GET /metrics"}
	for _, r := range s.api() {
		rows = append(rows, r.method+" "+r.path)
	}
	return rows
}

// OpenAPI is the OpenAPI document.
var OpenAPI = openAPI
