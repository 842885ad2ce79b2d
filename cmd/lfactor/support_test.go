package main

import (
	"testing"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// What tests of the command share with those of clusters.
var (
	long      = clitest.Long
	built     = clitest.Built
	tinyRun   = clitest.TinyRun
	widerArgs = clitest.WiderArgs
	runIn     = clitest.RunIn
	streams   = clitest.Streams
	stateOf   = clitest.StateOf
	metrics   = clitest.Metrics

	ingestData = clitest.IngestData
	treeOf     = clitest.TreeOf
)

type state = clitest.State
