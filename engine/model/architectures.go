package model

import "strings"

// Architectures returns the values of general.architecture that Load runs.
func Architectures() []string { return strings.Split(architectures, ", ") }
