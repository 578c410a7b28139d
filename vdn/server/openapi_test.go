package server_test

import (
	"net/http"
	"testing"
)

func described(_ *testing.T, h http.Handler) http.Handler { return h }
