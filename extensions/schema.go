package extensions

import (
	"bytes"
	"encoding/json"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
)

// given is a configuration; nil for none, which {} is as well.
func given(config json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(config) == 0 || json.Compact(&b, config) != nil || b.String() == "{}" {
		return nil
	}
	return config
}

// checkConfig checks an operator's configuration against a module's schema. No configuration is {}.
func (m Module) checkConfig(config json.RawMessage) error {
	if len(config) > abi.MaxConfig {
		return refused("config_too_large", "the configuration has %d bytes; at most %d go in", len(config), abi.MaxConfig)
	}
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	if err := payload.CheckConfig(m.Manifest.ConfigSchema, config); err != nil {
		return refused("config", "%v", err)
	}
	if given(config) != nil && !m.Takes {
		return refused("config", "the module takes no configuration: it has no %s", abi.Configure)
	}
	return nil
}
