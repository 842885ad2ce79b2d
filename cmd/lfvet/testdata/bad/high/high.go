// Package high may import everything below.
package high

import (
	_ "example.com/bad/low"
	_ "example.com/bad/sim"
)
