package heads_test

import (
	"testing"
	"time"
)

// TestDate reads a clock, as tests may.
func TestDate(t *testing.T) { t.Log(time.Now()) }
