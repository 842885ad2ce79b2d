package low_test

import (
	"time"

	_ "example.com/bad/low"
	_ "example.com/bad/other"   // tests may import their layer
	_ "example.com/testing/sub" // and the test modules
	_ "example.com/unknown"     // but no other
)

func wait() { time.Sleep(time.Second) }
