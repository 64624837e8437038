-- Written by Cellblock. Changes are overwritten.
-- slurmctld calls these functions for each job before it takes it (job_submit/lua, slurm.conf(5)).
--
-- System users submit no jobs. Root in the jail can become any of them, so nothing that the node does for one of their
-- jobs may be trusted (docs/decisions/jail-root-and-slurm.md). Root itself comes here only from outside the jail, as
-- an administrator: the jail's munged takes root inside, and all these, for uid 65534.

-- Ids of ordinary users, and of their groups (Debian's policy, 9.2.2): the plugin of the node takes no others, either
-- (users= in plugstack.conf). SlurmUser, munge and nobody are among those from 60001 to 65535.
local FIRST_USER, FIRST_RESERVED, LAST_RESERVED = 1000, 60001, 65535
-- SlurmUser, as images/base makes it.
local SLURM = 64030
-- "users", the primary group of all where each has none of his own.
local USERS = 100

local function is_system_user(id)
    return id < FIRST_USER or (id >= FIRST_RESERVED and id <= LAST_RESERVED)
end

local function refuse(what, id, advice)
    slurm.log_user("%s (here %d) submit no jobs. %s", what, id, advice)
    slurm.log_info("refused: a job of %s, %d", what, id)
    -- Slurm before 24.11 has no name for it.
    return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
end

local function refuse_user(uid)
    return refuse("Root in the jail and system users", uid, "Become a user first: `su - USER`; "
        .. "`useradd --create-home --shell /bin/bash USER` makes one.")
end

-- Without it the job would be taken, and ended with "Something is wrong with the boot of the nodes".
local function refuse_unknown(uid)
    slurm.log_user("slurmctld does not know user %d. A user who was just made is known within a second: type it again. "
        .. "If it stays so: the user's lines in the jail's /etc/passwd, group or shadow cannot be used.", uid)
    slurm.log_info("refused: a job of user %d, who is not known here", uid)
    return slurm.ESLURM_USER_ID_MISSING or slurm.ERROR
end

function slurm_job_submit(job, partitions, submit_uid)
    if submit_uid ~= 0 and is_system_user(submit_uid) then
        return refuse_user(submit_uid)
    end
    -- A job of root's own: root comes here from outside the jail alone.
    if job.user_id == 0 then
        return slurm.SUCCESS
    end
    -- Root may submit for others (sbatch --uid).
    if is_system_user(job.user_id) then
        return refuse_user(job.user_id)
    end
    if job.user_name == nil then
        return refuse_unknown(job.user_id)
    end
    if job.group_id ~= USERS and is_system_user(job.group_id) then
        -- sbatch --uid=USER of root's alone keeps group 0.
        return refuse("Users whose primary group is a system group", job.group_id, submit_uid == 0
            and "Name the user's own as well: --uid=USER --gid=GROUP."
            or "Root in the jail gives you another: `usermod --gid GROUP USER`; log in again then.")
    end
    return slurm.SUCCESS
end

function slurm_job_modify(change, job, partitions, modify_uid)
    if modify_uid ~= 0 and modify_uid ~= SLURM and is_system_user(modify_uid) then
        return refuse_user(modify_uid)
    end
    return slurm.SUCCESS
end

return slurm.SUCCESS
