--- softmoon: runs programs written for MoonGen, without DPDK. Usage: MoonGen program.lua [--dpdk-config=FILE] arguments
local mainFile = arg[0]
local base = mainFile:match("^(.*)/[^/]*$") or "."
package.path = base .. "/?.lua;" .. package.path

local config = require "softmoon.config"
local process = require "softmoon.process"
local serialize = require "softmoon.serialize"
require "utils"

io.stdout:setvbuf("line") -- several processes write to one log

local function fail(message)
	io.stderr:write(tostring(message), "\n")
	os.exit(1)
end

local function traceback(problem)
	return { problem = tostring(problem), trace = debug.traceback("", 2) }
end

-- Run `action`; an error is printed as MoonGen does and makes the result false.
local function guarded(taskName, action, ...)
	local results = { xpcall(action, traceback, ...) }
	if not results[1] then
		print(red("[FATAL] Lua error in task %s", taskName))
		print(results[2].problem)
		print(results[2].trace)
		return false
	end
	return unpack(results, 1, table.maxn(results))
end

local function loadProgram(path)
	local directory = path:match("^(.*)/[^/]*$")
	package.path = package.path .. ";" .. (directory or ".") .. "/?.lua"
	table.insert(package.loaders, function(name)
		return ("\n\tsoftmoon: module '%s' is not supported"):format(name)
	end)
	local program, problem = loadfile(path)
	if not program then
		fail(("softmoon: cannot read the program: %s"):format(problem))
	end
	return program
end

-- Arguments for the program, with numbers as numbers, and the path of the configuration file.
local function splitArguments()
	local arguments, configFile = {}, nil
	for i = 2, #arg do
		local path = arg[i]:match("^%-%-dpdk%-config=(.*)$")
		if path then
			configFile = path
		else
			arguments[#arguments + 1] = tonumber(arg[i]) or arg[i]
		end
	end
	return arguments, configFile
end

local function parsedArguments(arguments)
	local configure = rawget(_G, "configure")
	if not configure then
		return {}
	end
	local parser = require "argparse"("MoonGen " .. arg[1])
	parser:args(unpack(arguments))
	local parsed = { configure(parser, unpack(arguments)) }
	if #parsed == 0 and parser:isUsed() then
		parsed = { parser:parse() }
	end
	return parsed
end

local function runMaster(role)
	local arguments, configFile = splitArguments()
	local program = loadProgram(arg[1])
	local context = require "moongen".context
	context.mainFile, context.program, context.shared = mainFile, arg[1], role.shared
	if not guarded("master", program) then
		return 1
	end
	local ok, parsed = guarded("master", parsedArguments, arguments)
	if not ok then
		return 1
	end
	local read, interfaces = pcall(config.read, configFile)
	local probed, problem = pcall(require "device".probe, read and interfaces or {})
	if not read or not probed then
		fail(read and problem or interfaces)
	end
	if type(rawget(_G, "master")) ~= "function" then
		fail(("softmoon: %s has no function master"):format(arg[1]))
	end
	for _, argument in ipairs(arguments) do
		parsed[#parsed + 1] = argument
	end
	return guarded("master", _G.master, unpack(parsed, 1, table.maxn(parsed))) and 0 or 1
end

local function runTask(role)
	local program = loadProgram(role.program)
	require "device".adopt(role.devices)
	if not guarded(role.task, program) then
		return 1
	end
	local results = { guarded(role.task, function()
		local task = rawget(_G, role.task) or require "stats".tasks[role.task]
		if not task then
			error(("slave function %s not found"):format(role.task), 0)
		end
		return task(serialize.load(role.arguments))
	end) }
	require "device".reportDrops()
	if not results[1] then
		return 1
	end
	process.storeResults(role.results, unpack(results, 2, table.maxn(results)))
	return 0
end

local function main()
	local role = process.role()
	if not role then
		if not arg[1] then
			fail("Usage: MoonGen program.lua [--dpdk-config=FILE] [arguments]")
		end
		loadProgram(arg[1])
		return process.supervise(mainFile, { task = "master" }, arg)
	end
	process.followParent(role)
	if role.task == "master" then
		return runMaster(role)
	end
	return runTask(role)
end

os.exit(main())
