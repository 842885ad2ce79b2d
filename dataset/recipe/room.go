package recipe

// clusterRoom says where the table of clusters lies: in memory up to so many bytes (nil), else in a file of a folder
// that is mapped, so that the system holds as much of it in memory as there is room for. free gives it back.
func clusterRoom(dir string, bytes, most int64) (room func(n int64) ([]uint32, error), free func()) {
	if bytes <= most {
		return nil, func() {}
	}
	free = func() {}
	return func(n int64) ([]uint32, error) {
		list, end, err := mapped(dir, n)
		if err == nil {
			free = end
		}
		return list, err
	}, func() { free() }
}
