-- A --dpdk-config file that gives MoonGen one NIC, as port 0, whatever else is bound to DPDK's drivers. All that the
-- installation's own dpdk-conf.lua says of cores, memory and so on holds. In front of this stands what is `given`:
-- nic, its PCI address; prefix, of DPDK's files; memory, MiB of each NUMA node; folder, the installation.

if not pcall(require, "dpdkc") then
	error(("this MoonGen has no DPDK, so it cannot drive %s: leave test_iface_dpdk_driv out"):format(given.nic), 0)
end

-- What libmoon takes where no file is named, lua/dpdk.lua; but there the first is in the folder that MoonGen is started in.
local function places()
	local _, libmoon = pcall(require, "libmoon")
	local base = type(libmoon) == "table" and libmoon.config and libmoon.config.basePath
	return { given.folder, base or given.folder .. "/libmoon", "/etc/libmoon" }
end

local function installed()
	for _, place in ipairs(places()) do
		local path = place .. "/dpdk-conf.lua"
		local file = io.open(path)
		if file then
			file:close()
			local found
			local environment = setmetatable({ DPDKConfig = function(conf) found = conf end }, { __index = _G })
			setfenv(assert(loadfile(path)), environment)()
			if type(found) ~= "table" then
				error(path .. " does not contain a DPDKConfig statement", 0)
			end
			return found
		end
	end
	return {}
end

-- Of options that say which devices there are, and what DPDK's files are called, only those given here count.
local REPLACED = {
	["-w"] = true, ["-a"] = true, ["-b"] = true, ["--pci-whitelist"] = true, ["--pci-blacklist"] = true,
	["--allow"] = true, ["--block"] = true, ["--file-prefix"] = true
}

-- The name of an option, and whether its value stands with it in one word.
local function named(word)
	local long, value = word:match("^(%-%-[^=]+)(=?)")
	if long then
		return long, value == "="
	end
	return word:sub(1, 2), #word > 2
end

local function kept(options)
	local words, has, index = {}, {}, 1
	while index <= #options do
		local word = tostring(options[index])
		local name, joined = named(word)
		if REPLACED[name] then
			index = index + (joined and 0 or 1)
		elseif name ~= "--no-pci" then
			words[#words + 1], has[name] = word, true
		end
		index = index + 1
	end
	return words, has
end

local conf = installed()
conf.pciBlacklist, conf.pciWhitelist = nil, { given.nic }
local words, has = kept(conf.cli or {})
words[#words + 1] = "--file-prefix=" .. given.prefix
if not has["--no-huge"] and not has["--in-memory"] then
	if not (has["-m"] or has["--socket-mem"] or has["--numa-mem"]) then
		words[#words + 1] = "--socket-mem=" .. given.memory -- else an old DPDK takes all there is, and the next finds none
	end
	if not (has["--huge-unlink"] or has["--single-file-segments"]) then
		words[#words + 1] = "--huge-unlink" -- pages go back with the process, however it ends
	end
end
conf.cli = words
DPDKConfig(conf)
