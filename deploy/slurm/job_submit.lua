-- Written by Cellblock. Changes are overwritten.
-- slurmctld calls these functions for each job before it takes it (job_submit/lua, slurm.conf(5)).
--
-- System users submit no jobs. Root in the jail can become any of them, so nothing that the node does for one of their
-- jobs may be trusted (docs/decisions/jail-root-and-slurm.md). Root itself comes here only from outside the jail, as
-- an administrator: the jail's munged takes root inside, and all these, for uid 65534.

-- The first uid of an ordinary user: FIRST_UID of adduser.conf(5), UID_MIN of login.defs(5).
local FIRST_USER = 1000
-- SlurmUser, as images/base makes it.
local SLURM = 64030
-- munge, as images/base makes it, what Debian reserves beside it, nobody, and 65535, which means "none" to old calls.
local FIRST_RESERVED, LAST_RESERVED = 65520, 65535

local function is_system_user(uid)
    return uid < FIRST_USER or uid == SLURM or (uid >= FIRST_RESERVED and uid <= LAST_RESERVED)
end

local function refuse(uid)
    slurm.log_user("Root in the jail and system users (here uid %d) submit no jobs. Become a user first: "
        .. "`su - USER`; `useradd --create-home --shell /bin/bash USER` makes one.", uid)
    slurm.log_info("refused: a job of uid %d, a system user", uid)
    -- Slurm before 24.11 has no name for it.
    return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
end

function slurm_job_submit(job, partitions, submit_uid)
    if submit_uid ~= 0 and is_system_user(submit_uid) then
        return refuse(submit_uid)
    end
    -- Root may submit for others (sbatch --uid).
    if job.user_id ~= 0 and is_system_user(job.user_id) then
        return refuse(job.user_id)
    end
    return slurm.SUCCESS
end

function slurm_job_modify(change, job, partitions, modify_uid)
    if modify_uid ~= 0 and modify_uid ~= SLURM and is_system_user(modify_uid) then
        return refuse(modify_uid)
    end
    return slurm.SUCCESS
end

return slurm.SUCCESS
