package shelf

// DiskError tells what became of writing to the disk.
var DiskError = diskError
