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

	"github.com/lfactor/lfactor/cmd/lfactor/training"
)

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// metrics reads a run's metrics.jsonl.
func metrics(t *testing.T, dir string) (out []training.MetricLine) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "run", "metrics.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var m training.MetricLine
		require.NoError(t, json.Unmarshal(s.Bytes(), &m))
		out = append(out, m)
	}
	return
}
