package main

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// controls is the test's side: GET /containers; POST /containers/ID/exit?code=N ends one that runs as if by itself;
// POST /containers/ID/release ends one that is being stopped, unkillable or not.
func controls(t *table) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(t.records())
	})
	mux.HandleFunc("POST /containers/{id}/exit", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.ParseInt(r.FormValue("code"), 10, 32)
		found := t.find(r.PathValue("id"))
		if err != nil || found == nil {
			http.Error(w, "no such container, or no exit code", http.StatusNotFound)
			return
		}
		t.end(found, int32(code))
	})
	mux.HandleFunc("POST /containers/{id}/release", func(w http.ResponseWriter, r *http.Request) {
		if !t.free(r.PathValue("id")) {
			http.Error(w, "no such container", http.StatusNotFound)
		}
	})
	return mux
}
