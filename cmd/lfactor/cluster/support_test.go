package cluster_test

import (
	"testing"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// What tests of clusters share with those of the command.
var (
	long       = clitest.Long
	builtHead  = clitest.BuiltHead
	tinyRun    = clitest.TinyRun
	widerArgs  = clitest.WiderArgs
	runIn      = clitest.RunIn
	streamsEnv = clitest.StreamsEnv
	stateOf    = clitest.StateOf
	metrics    = clitest.Metrics
	ingestData = clitest.IngestData
	treeOf     = clitest.TreeOf
)

type state = clitest.State

// longOnly leaves a test out of the ordinary tier: what it covers, and what does there.
func longOnly(t *testing.T, what string) {
	t.Helper()
	if !*long {
		t.Skip("left out without -long: " + what)
	}
}
