package extensions

import (
	"encoding/json"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
)

// checkConfig checks an operator's configuration against a module's schema. No configuration is {}.
func checkConfig(m abi.Manifest, config json.RawMessage) error {
	if len(config) > abi.MaxConfig {
		return refused("config_too_large", "the configuration has %d bytes; at most %d go in", len(config), abi.MaxConfig)
	}
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	if err := payload.CheckConfig(m.ConfigSchema, config); err != nil {
		return refused("config", "%v", err)
	}
	return nil
}
