--- The --dpdk-config file: which interface is port 0, 1, ...
local config = {}

--- Interfaces named by the --vdev entries of an EAL command line, in the order of the ports.
function config.interfaces(cli)
	local interfaces = {}
	local index = 1
	while index <= #cli do
		local entry = tostring(cli[index])
		local vdev = entry:match("^%-%-vdev=(.+)$")
		if entry == "--vdev" then
			index = index + 1
			vdev = tostring(cli[index] or "")
		end
		if vdev then
			local name = vdev:match("^%w+_af_packet%d*,.-iface=([^,]+)")
			if not name then
				error(("softmoon: --vdev '%s' is not supported, only net_af_packetN,iface=NAME"):format(vdev), 0)
			end
			interfaces[#interfaces + 1] = name
		end
		index = index + 1
	end
	return interfaces
end

--- Interfaces of a configuration file. A run without one has no ports, as MoonGen without a usable NIC.
function config.read(path)
	if not path then
		return {}
	end
	local chunk, problem = loadfile(path)
	if not chunk then
		error(("softmoon: cannot read the --dpdk-config file: %s"):format(problem), 0)
	end
	local settings
	local environment = setmetatable({ DPDKConfig = function(given) settings = given end }, { __index = _G })
	local ok, failure = pcall(setfenv(chunk, environment))
	if not ok then
		error(("softmoon: the --dpdk-config file fails: %s"):format(failure), 0)
	end
	if type(settings) ~= "table" or type(settings.cli) ~= "table" then
		error(("softmoon: %s has no DPDKConfig { cli = { ... } }"):format(path), 0)
	end
	return config.interfaces(settings.cli)
end

return config
