package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// metrics reads a run's metrics.jsonl.
func metrics(t *testing.T, dir string) (out []run.Metrics) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "run", "metrics.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var m run.Metrics
		require.NoError(t, json.Unmarshal(s.Bytes(), &m))
		out = append(out, m)
	}
	return
}
