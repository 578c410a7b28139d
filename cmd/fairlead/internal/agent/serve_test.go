package agent

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/api"
)

// An agent reads no more of a request than it needs, and reports that.
func TestRequestsAreBounded(t *testing.T) {
	body := `{"frame":"` + strings.Repeat("A", maxRequest) + `"}`
	w := httptest.NewRecorder()
	answer((&agent{}).answerTrace).ServeHTTP(w, httptest.NewRequest(http.MethodPost, api.TracePath, bytes.NewReader([]byte(body))))
	if want := "request: longer than 1048576 bytes"; w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}
