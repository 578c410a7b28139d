package server

// Rows are the rows of the API, as "GET /v1/networks", and what else is answered.
func Rows(s *Server) []string {
	rows := []string{"GET /metrics"}
	for _, r := range s.api() {
		rows = append(rows, r.method+" "+r.path)
	}
	return rows
}

// OpenAPI is the document.
var OpenAPI = openAPI
